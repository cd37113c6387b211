"""One module per property or family: what the kernels found, counted and explained."""
