"""The live runtime: processes form a group over real UDP, around the same protocol objects as simulated."""
