"""A load on a live group: local members, a process each, that send, read and check every message."""
