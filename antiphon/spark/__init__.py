"""Spark: the session, the audit of traces and the sweeps of seeded runs."""
