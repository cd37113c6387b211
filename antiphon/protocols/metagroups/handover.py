"""Trees that hand over: how far all sites are with them, as the coordinator gathers and tells it."""

from typing import Final

from antiphon.core.effects import Effect, Multicast
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.metagroups.grove import Grove
from antiphon.protocols.metagroups.pdus import BUSY, FINISHED, Progress, TreeId, Word


class Handover:
    """What is known of other sites' progress in the version in force, and what was told of everybody's."""

    def __init__(self, site: Site, grove: Grove, effects: list[Effect]) -> None:
        self._site: Final = site
        self._grove: Final = grove
        self._effects: Final = effects
        self._heard: dict[Site, dict[TreeId, int]] = {}
        self._told: dict[TreeId, int] = {}

    def forget(self) -> None:
        """Another version is in force, or none."""
        self._heard.clear()
        self._told = {}

    def hear(self, sender: Site, pdu: Word) -> None:
        """A site that knows the version in force tells how far it is."""
        self._heard[sender] = dict(pdu.stages)

    def tell_news(self, now: Nanoseconds) -> None:
        """Tell all if all have got further."""
        stages = self._stages()
        if stages != self._told:
            self._told = stages
            self.tell(now)

    def tell(self, now: Nanoseconds) -> None:
        """Tell all how far all are."""
        stages = tuple(sorted((tree, stage) for tree, stage in self._stages().items() if stage > BUSY))
        if stages:
            self._effects.append(Multicast(Progress(stages)))
            self._grove.take_progress(now, stages)

    def over(self) -> set[TreeId]:
        """Trees that all sites are done with."""
        return self._grove.over | {tree for tree, stage in self._stages().items() if stage == FINISHED}

    def _stages(self) -> dict[TreeId, int]:
        """How far all sites are with each tree that hands over, as far as is known here."""
        layout = self._grove.layout
        if layout is None or not layout.retiring:
            return {}
        others = [site for site in layout.lives if site != self._site]
        if not all(site in self._heard for site in others):
            return dict.fromkeys(layout.retiring, BUSY)
        everyone = [dict(self._grove.stages()), *(self._heard[site] for site in others)]
        return {tree: min(stages.get(tree, FINISHED) for stages in everyone) for tree in layout.retiring}
