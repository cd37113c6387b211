"""Tests of the room `timing`."""
