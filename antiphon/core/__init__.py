"""The vocabulary of all other packages: ids, time, inputs, effects, the wire, errors."""
