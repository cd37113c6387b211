"""Fault layers: what can go wrong with an arrival between the network and a site.

Each layer draws from a stream of its own, named after it, so that adding or removing one never changes what
another draws. A layer decides when the network hands an arrival over: a partition stops what arrives while
it lasts, whenever that was sent.
"""

from collections.abc import Iterable, Sequence

from antiphon.core.errors import UsageError
from antiphon.core.seeds import Seeds
from antiphon.core.time import Nanoseconds
from antiphon.sim.network import Arrival


def _require_probability(value: float, what: str) -> None:
    if not 0.0 <= value <= 1.0:
        raise UsageError(f"The {what} is a probability from 0 to 1, not {value}.")


def _require_duration(value: Nanoseconds, what: str) -> None:
    if value < 0:
        raise UsageError(f"The {what} cannot be negative.")


class Loss:
    """Drops each arrival with a probability of its own."""

    def __init__(self, seeds: Seeds, probability: float) -> None:
        _require_probability(probability, "loss")
        self._random = seeds.stream("layer/loss")
        self._probability = probability

    def apply(self, arrival: Arrival) -> Sequence[Arrival]:
        return () if self._random.random() < self._probability else (arrival,)


class Delay:
    """Holds each arrival up by a time drawn evenly from `least_ns` to `most_ns`."""

    def __init__(self, seeds: Seeds, least_ns: Nanoseconds, most_ns: Nanoseconds) -> None:
        _require_duration(least_ns, "least delay")
        _require_duration(most_ns - least_ns, "span of the delay")
        self._random = seeds.stream("layer/delay")
        self._least_ns = least_ns
        self._most_ns = most_ns

    def apply(self, arrival: Arrival) -> Sequence[Arrival]:
        late_ns = self._random.randint(self._least_ns, self._most_ns)
        return (arrival.delayed(late_ns),)


class Duplication:
    """Lets an arrival come a second time, up to `within_ns` later."""

    def __init__(self, seeds: Seeds, probability: float, within_ns: Nanoseconds) -> None:
        _require_probability(probability, "duplication")
        _require_duration(within_ns, "time of a duplicate")
        self._random = seeds.stream("layer/duplication")
        self._probability = probability
        self._within_ns = within_ns

    def apply(self, arrival: Arrival) -> Sequence[Arrival]:
        if self._random.random() >= self._probability:
            return (arrival,)
        late_ns = self._random.randint(0, self._within_ns)
        return arrival, arrival.delayed(late_ns)


class Reordering:
    """Holds some arrivals up, so that later ones overtake them."""

    def __init__(self, seeds: Seeds, probability: float, within_ns: Nanoseconds) -> None:
        _require_probability(probability, "reordering")
        _require_duration(within_ns, "time of a reordering")
        self._random = seeds.stream("layer/reordering")
        self._probability = probability
        self._within_ns = within_ns

    def apply(self, arrival: Arrival) -> Sequence[Arrival]:
        if self._random.random() >= self._probability:
            return (arrival,)
        late_ns = self._random.randint(0, self._within_ns)
        return (arrival.delayed(late_ns),)


class Partition:
    """Separates cells of sites from each other until it is healed."""

    def __init__(self, sites: int) -> None:
        self._cell_of = [0] * sites

    def split(self, cells: Iterable[Iterable[int]]) -> None:
        """From now on only sites of one cell reach each other; sites in no cell form one more."""
        cell_of = [0] * len(self._cell_of)
        for number, cell in enumerate(cells, start=1):
            for site in cell:
                if cell_of[site]:
                    raise UsageError(f"Site {site} is in two cells of one partition.")
                cell_of[site] = number
        self._cell_of = cell_of

    def heal(self) -> None:
        """All sites reach each other again."""
        self._cell_of = [0] * len(self._cell_of)

    def apply(self, arrival: Arrival) -> Sequence[Arrival]:
        together = self._cell_of[arrival.source] == self._cell_of[arrival.target]
        return (arrival,) if together else ()
