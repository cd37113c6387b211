"""What a trace tells about speed: clocks, latencies, who is slow; tables in, a summary out, no Spark."""
