"""Retiring trees: how far all sites have got with them, as the coordinator gathers it and sends it on."""

from collections.abc import Mapping
from typing import Final

from antiphon.core.effects import Multicast
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.metagroups.context import Context
from antiphon.protocols.metagroups.pdus import BUSY, DRAINED, FINISHED, Heartbeat, Progress, TreeId
from antiphon.protocols.metagroups.site_trees import SiteTrees


class Handover:
    """The stages that other sites have reported in the current view, and the minimum that was sent last."""

    def __init__(self, context: Context, trees: SiteTrees) -> None:
        self._site: Final = context.site
        self._effects: Final = context.effects
        self._trees: Final = trees
        self._reported: dict[Site, dict[TreeId, int]] = {}
        self._sent: dict[TreeId, int] = {}

    def reset(self) -> None:
        """The view has changed, or this site starts a new session."""
        self._reported.clear()
        self._sent = {}

    def on_heartbeat(self, sender: Site, pdu: Heartbeat) -> None:
        """A site in the same view reports its stages."""
        self._reported[sender] = dict(pdu.stages)

    def send_news(self, now: Nanoseconds) -> None:
        """Send the stages of all if they have advanced."""
        stages = self._stages()
        if stages != self._sent:
            news = {tree: stage for tree, stage in stages.items() if self._sent.get(tree, BUSY) < stage}
            self._sent = stages
            self._send(now, news)

    def repeat(self, now: Nanoseconds) -> None:
        """Send again which trees are drained, until all have finished them.

        That a tree is finished is sent once: a site that misses it only keeps what it no longer needs.
        """
        self._send(now, {tree: stage for tree, stage in self._stages().items() if stage == DRAINED})

    def _send(self, now: Nanoseconds, stages: Mapping[TreeId, int]) -> None:
        """Send the sites of each tree the stage that all sites have reached there."""
        view = self._trees.view
        for tree, stage in sorted(stages.items()):
            if view is None or stage == BUSY:
                continue
            others = tuple(sorted(view.sites_on(tree) - {self._site}))
            if others:
                self._effects.append(Multicast(Progress(((tree, stage),)), others))
            self._trees.on_progress(now, ((tree, stage),))

    def finished(self) -> set[TreeId]:
        """Retiring trees that all sites have finished."""
        return self._trees.over | {tree for tree, stage in self._stages().items() if stage == FINISHED}

    def _stages(self) -> dict[TreeId, int]:
        """The stage that all sites have reached on each retiring tree, as far as is known here."""
        view = self._trees.view
        if view is None or not view.retiring:
            return {}
        others = [site for site in view.sessions if site != self._site]
        if not all(site in self._reported for site in others):
            return dict.fromkeys(view.retiring, BUSY)
        everyone = [dict(self._trees.stages()), *(self._reported[site] for site in others)]
        return {tree: min(stages.get(tree, FINISHED) for stages in everyone) for tree in view.retiring}
