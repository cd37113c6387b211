"""Fault layers: what can go wrong with an arrival between the network and a site.

Each layer draws from a stream of its own, named after it, so that adding or removing one never changes what
another draws. A layer decides when the network hands an arrival over: a partition stops what arrives while
it lasts, whenever that was sent.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar

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


class _Lateness:
    """Draws which arrivals are affected, and how much later they come."""

    name: ClassVar[str]

    def __init__(self, seeds: Seeds, probability: float, within_ns: Nanoseconds) -> None:
        """Each arrival is affected with this probability, and comes up to `within_ns` later."""
        _require_probability(probability, self.name)
        _require_duration(within_ns, f"time of a {self.name}")
        self._random = seeds.stream(f"layer/{self.name}")
        self._probability = probability
        self._within_ns = within_ns

    def late(self, arrival: Arrival) -> Arrival | None:
        """The arrival, later; None if it is not affected."""
        if self._random.random() >= self._probability:
            return None
        return arrival.delayed(self._random.randint(0, self._within_ns))


class Duplication(_Lateness):
    """Lets some arrivals come a second time."""

    name = "duplication"

    def apply(self, arrival: Arrival) -> Sequence[Arrival]:
        late = self.late(arrival)
        return (arrival,) if late is None else (arrival, late)


class Reordering(_Lateness):
    """Holds some arrivals up, so that later ones overtake them."""

    name = "reordering"

    def apply(self, arrival: Arrival) -> Sequence[Arrival]:
        return (self.late(arrival) or arrival,)


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
