"""Other systems' logs as traces: a parser for each format, and the rules that turn records into rows."""
