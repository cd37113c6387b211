"""Every protocol, as a pure state machine: one module or one folder each."""
