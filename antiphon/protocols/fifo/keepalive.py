"""Signs of life: small PDUs between neighbours, by which silence is noticed and views are compared.

In a small group every member is every other's neighbour, and a sign of life is multicast. In a large one the
neighbours are those around a member in the view's order; a member multicasts rarely, so that halves of a
group find each other again. What a member sends and receives is bounded in both.

A neighbour that has been silent for half of `suspect_after_ns` is asked, and asked again, before it is
suspected. Its neighbours' statuses tell the rest of the group (`failure_detection`).
"""

from typing import Final

from antiphon.core.effects import Multicast, Send
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.fifo.context import Context
from antiphon.protocols.fifo.group import Group, Peer
from antiphon.protocols.fifo.pdus import Sign

ALIVE: Final = "alive"
ASKING: Final = 4
"""While a neighbour is silent it is asked this many times as often as signs of life are sent. Raising it
costs PDUs, and saves wrong suspicions under loss."""


class Keepalive:
    """Sends signs of life, and asks silent neighbours for theirs."""

    def __init__(self, context: Context, group: Group) -> None:
        self._context = context
        self._group = group
        self._suspect_after_ns = context.configuration.suspect_after_ns
        self._multicast_ns: Nanoseconds = 0
        self._told_ns: Nanoseconds = 0
        self._before: frozenset[Site] = frozenset()
        """The neighbours in the view before."""

    def on_view(self, now: Nanoseconds) -> None:
        """New neighbours have the usual time to be heard."""
        group = self._group
        neighbours = frozenset(group.view.neighbours)
        if group.pace.is_large:
            for site in neighbours - self._before:
                group.peers[site].heard_ns = group.peers[site].hears_us_ns = now
        self._before = neighbours
        self._context.timers.arm(now, ALIVE, group.pace.tick_ns)

    def fire(self, now: Nanoseconds) -> None:
        """Tell the neighbours that we are alive, and ask those that are silent."""
        group, pace = self._group, self._group.pace
        silent = [site for site in group.view.neighbours if self._is_silent(now, group.peers[site])]
        for site in silent:
            self._context.emit(Send(site, self._make(now, asks=True)))
        if now - self._told_ns >= pace.tick_ns:
            self._tell(now)
        pause_ns = pace.tick_ns // ASKING if silent else pace.tick_ns
        self._context.timers.arm(now, ALIVE, max(1, pause_ns))

    def announce(self, now: Nanoseconds, *, asks: bool) -> None:
        """Tell all members how far our messages go."""
        self._told_ns = self._multicast_ns = now
        self._context.emit(Multicast(self._make(now, asks=asks)))

    def answer(self, now: Nanoseconds, to: Site) -> None:
        self._context.emit(Send(to, self._make(now, asks=False)))

    def _tell(self, now: Nanoseconds) -> None:
        if now - self._multicast_ns >= self._group.pace.session_ns:
            self.announce(now, asks=False)
            return
        self._told_ns = now
        self._context.emit(Multicast(self._make(now, asks=False), tuple(self._group.view.neighbours)))

    def _make(self, now: Nanoseconds, *, asks: bool) -> Sign:
        group = self._group
        view, peers = group.view, group.peers
        since_ns = now - self._suspect_after_ns
        unheard = [site for site in view.neighbours if peers[site].heard_ns <= since_ns]
        places = tuple(view.sites.index(site) for site in unheard)
        return Sign(self._context.incarnation, view.number, group.own.expected, asks, places)

    def _is_silent(self, now: Nanoseconds, peer: Peer) -> bool:
        """Whether a neighbour should be asked: we have not heard of it, or it has not heard of us."""
        since_ns = now - self._suspect_after_ns // 2
        return not peer.left and min(peer.heard_ns, peer.hears_us_ns) <= since_ns
