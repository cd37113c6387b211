"""The vocabulary that every other room speaks: ids, time, inputs, effects, the wire, errors."""
