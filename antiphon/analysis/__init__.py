"""Pure mathematics of stability detection: epidemics, triggers and searches for the best step."""
