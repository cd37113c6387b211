"""The stability advisor: a sweep of all protocols, the tables made from it, and the advice."""
