"""One module per paper: its figures, tables and claims as data, judged by sweeps on Spark."""
