"""The peers heard recently, and how far each has come in the order: for pacing, and to know who counts.

No decision about order depends on it: the group simply stops waiting for a peer that it no longer hears. How
long a peer may be silent depends on how long it was silent before while there was something to report: on a
busy machine processes stand still for a while without being gone.

Before that a silent peer is left behind step by step, further the longer it is silent, but not beyond what is
kept for it: so a peer that is gone does not halt the others, and a peer that was only late finds everything.
"""

from collections.abc import Callable, Set
from math import inf
from typing import Final

from antiphon.core.effects import Appeared, Effect, Vanished
from antiphon.core.ids import Site
from antiphon.core.time import SECOND_NS, Nanoseconds

MOST_SITES: Final = 4096
"""Peers remembered. Raising it costs memory."""
PATIENCE: Final = 2
"""A peer may stay silent for this multiple of its longest recent silence. Raising it costs a longer halt."""
MOST_PATIENCE_NS: Final[Nanoseconds] = SECOND_NS // 2
"""Longest silence that is waited out. Raising it costs a longer halt when a peer is gone."""
LEASH: Final = 3.0
"""Extra lag, in multiples of `lag`, that a silent peer is allowed before the group stops waiting for it.

Raising it requires that more bodies are kept.
"""
LEASH_SILENCES: Final = 3
"""Time until the group stops waiting, in multiples of `lately_ns`, beyond the peer's usual silence.

Raising it costs throughput for a moment when a peer is gone; lowering it makes late peers miss messages.
"""
LONGEST_LEAP: Final = 1 << 35
"""How far an incarnation told by others may exceed all that were heard: a year in milliseconds.

Raising it lets a liar invent later incarnations.
"""
MOST_ESTRANGED: Final = 256
"""Peers that fell silent and may come back with another order. Raising it costs memory."""
FORGETTING: Final = 16
"""With each PDU that follows a silence, the silence counts less by this part. Raising it remembers longer."""


class Incarnations(dict[Site, int]):
    """The latest incarnation of each site, by its own word; sites heard first are forgotten first.

    A later incarnation told by another member is not believed: the site could then never be heard again.
    """

    def hear(self, site: Site, incarnation: int) -> bool:
        """Whether this is the site's latest incarnation, as far as it is known."""
        known = self.get(site)
        if known is None and len(self) >= MOST_SITES:
            del self[next(iter(self))]
        if known is None or incarnation > known:
            self[site] = incarnation
        return known is None or incarnation >= known

    def is_plausible(self, site: Site, incarnation: int, present: Set[Site]) -> bool:
        """Whether another member may be right that a site has had this incarnation.

        A present site has told its latest incarnation itself.
        """
        if site in present and site in self:
            return incarnation <= self[site]
        return incarnation <= max(self.values(), default=0) + LONGEST_LEAP


class Peer:
    """Another member."""

    __slots__ = ("advanced_ns", "ahead", "furthest", "heard_ns", "index", "silence_ns")

    def __init__(self, index: int, now: Nanoseconds) -> None:
        self.index = self.furthest = index
        self.ahead = 0
        """How much further we count at a common message: more than 0 if it has passed messages over."""
        self.heard_ns = self.advanced_ns = now
        self.silence_ns: Nanoseconds = 0


class Peers:
    """The other members that were heard; emits `Appeared` and `Vanished`."""

    def __init__(
        self, lately_ns: Nanoseconds, gone_ns: Nanoseconds, busy: int, emit: Callable[[Effect], None]
    ) -> None:
        """`busy` is the growth of the order after which a peer had something to report."""
        self._lately_ns = lately_ns
        self._gone_ns = max(lately_ns, gone_ns)
        self._busy = max(1, busy)
        self._emit = emit
        self._sites: dict[Site, Peer] = {}
        self._estranged: dict[Site, None] = {}
        """Peers that fell silent, until their order is known to be ours."""

    def on_progress(self, now: Nanoseconds, site: Site, index: int, own: int) -> None:
        """A peer was heard, and tells its index in its own order."""
        peer = self._sites.get(site)
        if peer is None:
            if len(self._sites) < MOST_SITES:
                self._sites[site] = Peer(index, now)
                self._emit(Appeared(site))
            return
        index += peer.ahead
        peer.silence_ns -= peer.silence_ns // FORGETTING
        if own - peer.index >= self._busy:
            peer.silence_ns = max(peer.silence_ns, now - peer.heard_ns)
        peer.index = index
        peer.heard_ns = now
        if index > peer.furthest:
            peer.furthest = index
            peer.advanced_ns = now

    def align(self, site: Site, ahead: int | None) -> None:
        """Set how much further we count than a peer whose order may differ; None if unknown."""
        peer = self._sites.get(site)
        if peer is not None and ahead is not None and ahead != peer.ahead:
            peer.index += ahead - peer.ahead
            peer.furthest = peer.index
            peer.ahead = ahead

    def leave(self, site: Site, reason: str = "It left.") -> None:
        """A peer says that it leaves."""
        self._estranged.pop(site, None)
        if self._sites.pop(site, None) is not None:
            self._emit(Vanished(site, reason))

    def expire(self, now: Nanoseconds) -> list[Site]:
        """Forget and return the peers that have been silent for too long."""
        gone = [site for site, one in self._sites.items() if now - one.heard_ns > self._gone_ns]
        for site in gone:
            del self._sites[site]
            self._estranged[site] = None
            self._emit(Vanished(site, "It has been silent for too long."))
        while len(self._estranged) > MOST_ESTRANGED:
            del self._estranged[next(iter(self._estranged))]
        return gone

    def is_estranged(self, site: Site) -> bool:
        """Whether a peer fell silent, and has not been reconciled since."""
        return site in self._estranged

    def reconcile(self, site: Site) -> None:
        """A peer goes on with this member's order, or the fork is settled."""
        self._estranged.pop(site, None)

    def heard_since(self, since_ns: Nanoseconds) -> int:
        """How many peers were heard since then."""
        return sum(one.heard_ns >= since_ns for one in self._sites.values())

    def known(self) -> bool:
        return bool(self._sites)

    def sites(self) -> Set[Site]:
        return self._sites.keys()

    def lately(self, now: Nanoseconds) -> frozenset[Site]:
        """The peers that are not silent for longer than usual."""
        return frozenset(site for site, one in self._sites.items() if self._is_there(now, one))

    def _is_there(self, now: Nanoseconds, one: Peer) -> bool:
        return now - one.heard_ns <= self._patience_ns(one)

    def _patience_ns(self, one: Peer) -> Nanoseconds:
        return max(self._lately_ns, min(PATIENCE * one.silence_ns, MOST_PATIENCE_NS))

    def slowest(self, now: Nanoseconds, own: int) -> int:
        """The least index of the present peers and of this member."""
        least = own
        for one in self._sites.values():
            if one.index < least and self._is_there(now, one):
                least = one.index
        return least

    def is_any_behind(self, now: Nanoseconds, index: int, lag: int) -> bool:
        """Whether a member at this index has to wait for a peer that is behind by `lag`.

        A peer that makes no progress is not waited for: it will have to begin again, or lies.
        """
        least, since_ns = index - lag, now - self._gone_ns
        return any(
            index - one.index >= lag + self._leash(now, one, lag)
            for one in self._sites.values()
            if one.index <= least and one.advanced_ns >= since_ns
        )

    def reports(self, now: Nanoseconds, index: int, lag: int) -> dict[Site, tuple[int, Nanoseconds, bool]]:
        """Each peer's index, when it was heard, and whether a member at this index waits for it."""
        since_ns = now - self._gone_ns
        return {
            site: (
                one.index,
                one.heard_ns,
                index - one.index >= lag + self._leash(now, one, lag) and one.advanced_ns >= since_ns,
            )
            for site, one in list(self._sites.items())
        }

    def _leash(self, now: Nanoseconds, one: Peer, lag: int) -> float:
        """By how much more than `lag` a peer may be left behind."""
        share = (now - one.heard_ns) / (self._patience_ns(one) + LEASH_SILENCES * self._lately_ns)
        return LEASH * lag * share if share < 1 else inf
