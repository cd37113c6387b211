"""The deterministic world: event heap, network models, fault layers. Equal seeds, equal traces."""
