"""The command line, one file per verb. stdout is data, stderr is talk."""
