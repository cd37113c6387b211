"""Protocols that exist only to be compared with: what the four papers, and we, measure ourselves against."""
