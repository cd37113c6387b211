"""One seed, many named streams: a stream's numbers depend on the seed and its name, and on nothing else.

Adding a consumer of randomness therefore never shifts what another consumer draws, and no stream depends
on Python's hash seed.
"""

import hashlib
from random import Random

import numpy as np


class Seeds:
    """The root of a run's randomness."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def _derive(self, name: str) -> int:
        digest = hashlib.blake2b(f"{self.seed}/{name}".encode(), digest_size=16).digest()
        return int.from_bytes(digest, "big")

    def stream(self, name: str) -> Random:
        """A generator for protocol code and fault layers."""
        return Random(self._derive(name))

    def array_stream(self, name: str) -> np.random.Generator:
        """A generator for drawing whole arrays at once."""
        return np.random.Generator(np.random.PCG64(self._derive(name)))
