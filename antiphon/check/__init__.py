"""Pure functions from a trace to a verdict, each able to explain itself."""
