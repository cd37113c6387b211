"""Who we are measured against: each module runs one rival for a while and says what it reached."""
