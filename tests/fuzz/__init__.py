"""The structure-aware fuzzer: hostile and mistaken members against every order, simulated and live."""
