"""Stability detection: learning which messages every member holds, so that buffers can be freed."""
