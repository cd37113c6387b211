"""Applications that stand on a group: pure state machines, like the protocols below them."""
