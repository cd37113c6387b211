"""Replicated objects in the simulator: members with disks, clients that call, and what they were answered."""
