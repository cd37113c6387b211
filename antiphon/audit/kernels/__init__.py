"""Compiled kernels of the audit: flat arrays in, flat arrays out, one module per property.

A run's sites and messages are dense integers. `kinds` and `messages` hold the entries of all sites' logs, one
site after another; `starts[site]` is where a site's entries begin. `delivered` holds the messages of the
delivery entries alone, again site by site, with `delivery_starts`. -1 means none.
"""
