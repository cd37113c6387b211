"""The stability advisor: a sweep of all protocols, what was learnt from it, and what that advises."""
