"""Message stability detection: who holds what, so that it can be forgotten (Guo)."""
