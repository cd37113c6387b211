"""What goes wrong on a network at the moment: the simulator's fault layers, to be changed while time passes.

One `Weather` stands before the sites of a simulated world, or inside the switch between real hosts; what it
does to an arrival is the same code in both.
"""

from collections.abc import Iterable, Sequence

from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS, from_seconds
from antiphon.sim.layers import Delay, Duplication, Loss, Partition, Reordering
from antiphon.sim.network import Arrival, Layer

HELD_UP_NS = 10 * MILLISECOND_NS
"""How late a duplicate or an overtaken arrival comes at most."""


class Weather:
    """Implements `antiphon.sim.network.Layer`: none at first, then whatever was asked for last."""

    def __init__(self, sites: int, seed: int) -> None:
        self._seeds = Seeds(seed)
        self._partition = Partition(sites)
        self._layers: tuple[Layer, ...] = ()
        self.meddled = 0
        """How many arrivals did not come just once and at once."""

    def trouble(
        self,
        *,
        loss: float = 0.0,
        delay_ms: float = 0.0,
        jitter_ms: float = 0.0,
        duplication: float = 0.0,
        reordering: float = 0.0,
    ) -> None:
        """From now on every arrival meets this, drawn for each receiver by itself, and nothing else."""
        delay_ns, jitter_ns = from_seconds(delay_ms / 1000), from_seconds(jitter_ms / 1000)
        layers: list[Layer] = []
        if delay_ns or jitter_ns:
            layers.append(Delay(self._seeds, delay_ns, delay_ns + jitter_ns))
        if loss:
            layers.append(Loss(self._seeds, loss))
        if duplication:
            layers.append(Duplication(self._seeds, duplication, HELD_UP_NS))
        if reordering:
            layers.append(Reordering(self._seeds, reordering, HELD_UP_NS))
        self._layers = tuple(layers)

    def split(self, cells: Iterable[Iterable[int]]) -> None:
        """From now on only sites of one cell reach each other."""
        self._partition.split(cells)

    def heal(self) -> None:
        """Everyone reaches everyone again, and nothing else goes wrong."""
        self._partition.heal()
        self._layers = ()

    def apply(self, arrival: Arrival) -> Sequence[Arrival]:
        outcomes = self._partition.apply(arrival)
        for layer in self._layers:
            outcomes = [outcome for before in outcomes for outcome in layer.apply(before)]
        if len(outcomes) != 1 or outcomes[0].time_ns != arrival.time_ns:
            self.meddled += 1
        return outcomes
