"""Spark: the session, and the jobs that audit traces and sweep seeded runs."""
