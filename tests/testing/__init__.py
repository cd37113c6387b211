"""Tests of `antiphon.testing`."""
