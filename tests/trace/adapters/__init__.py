"""Other systems' logs: parsers, numbering, and whole imports."""
