"""Antiphon: ordered, reliable multicast for Python. Run it, prove it, study it."""

__version__ = "0.1.0"
