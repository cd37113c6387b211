"""Large logs to traces."""
