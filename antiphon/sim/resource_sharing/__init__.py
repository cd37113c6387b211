"""A simulated group whose members share a resource, over any ordering protocol, with or without disorder."""
