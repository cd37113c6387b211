"""A quorum: a member delivers only what enough members have in the same place of their order.

Beyond the paper, whose members go on in every part of a split network. With a quorum of more than half of the
members, a smaller side of a partition delivers nothing. A member counts for a place once it has told an index
and a digest that show the same order up to there: hearing it is not enough. So a minority waits from the
moment of the partition on, before any timer says that the others are gone.

This is no consensus. A member may give up an order that it has told, and then counts for another one, so a
place can still be delivered in two ways; members report that. `antiphon.protocols.quorum` rules it out.

A member that is short of a quorum keeps what it has incorporated. If the others turn out to have gone on
differently it begins a new spell, and goes back to what it has delivered.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from antiphon.core.effects import CutOff, Effect, Resumed
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.agreement import Agreement
from antiphon.protocols.dpg.pdus import LARGEST

MOST_SITES: Final = 1024
"""Other members that count. Raising it costs memory."""
MOST_AHEAD: Final = 32
"""Words of a member that is ahead, kept until this member gets there. Raising it costs memory."""
FIRST_WAITS: Final = 4
"""How much longer than others the first member by name waits for a quorum before it begins a new spell."""


class Quorum:
    """What others have told of the order; `needed` members, with this one, must have a place."""

    def __init__(self, needed: int, agreement: Agreement) -> None:
        self.needed: Final = needed
        self._agreement = agreement
        self._common: dict[Site, int] = {}
        """The latest place up to which each member's order is known to be ours."""
        self._ahead: dict[Site, deque[tuple[int, int]]] = {}
        """Indices and digests of members that are ahead of this one."""
        self._others: set[Site] = set()
        """Members whose latest word shows another order."""
        self._reach = LARGEST if needed <= 1 else 0

    @property
    def is_needed(self) -> bool:
        return self.needed > 1

    def reach(self) -> int:
        """The latest place that may be delivered."""
        return self._reach

    def on_told(self, site: Site, index: int, digest: int) -> None:
        """Another member tells the digest of its order at its index."""
        if not self.is_needed or (site not in self._common and len(self._common) >= MOST_SITES):
            return
        self._common.setdefault(site, 0)
        if index > self._agreement.index:
            self._ahead.setdefault(site, deque(maxlen=MOST_AHEAD)).append((index, digest))
        elif self._agreement.digests.at(index) == digest:
            self._others.discard(site)
            self._common[site] = max(self._common[site], index)
            self._count()
        else:
            self._others.add(site)

    def advance(self) -> None:
        """Our order has gone on: others may have had the same before."""
        if not self.is_needed:
            return
        for site, words in self._ahead.items():
            while words and words[0][0] <= self._agreement.index:
                self.on_told(site, *words.popleft())

    def _count(self) -> None:
        places = sorted(self._common.values(), reverse=True)
        if len(places) >= self.needed - 1:
            self._reach = places[self.needed - 2]

    def is_contradicted(self) -> bool:
        """Whether a member has shown that its order is not ours."""
        return bool(self._others)

    def forget(self, site: Site) -> None:
        """A member leaves or begins again: what it has told of its order is void."""
        self._common.pop(site, None)
        self._ahead.pop(site, None)
        self._others.discard(site)

    def listen(self) -> None:
        """A spell is over: our order may go back."""
        self._common.clear()
        self._ahead.clear()
        self._others.clear()
        self._reach = 0 if self.is_needed else LARGEST


class CutOffWatch:
    """Tells the application when deliveries wait for a quorum, and when they go on."""

    def __init__(self, needed: int, patience_ns: Nanoseconds, emit: Callable[[Effect], None]) -> None:
        """Within `patience_ns` every present member is heard, and tells a place that it has."""
        self._needed = needed
        self.patience_ns: Final = patience_ns
        self._emit = emit
        self._begin_ns: Nanoseconds = 0
        """When this member began to hear the others."""
        self._waits_ns: Nanoseconds | None = None
        """Since when a place waits."""
        self._enough_ns: Nanoseconds | None = None
        """Since when enough members are connected."""
        self.is_cut_off = False

    def begin(self, now: Nanoseconds) -> None:
        """A spell is over; the next begins with `Present`, which tells more than `Resumed`."""
        self._begin_ns = now
        self._waits_ns = self._enough_ns = None
        self.is_cut_off = False

    def look(self, now: Nanoseconds, heard: int, *, waits: bool) -> None:
        """This many peers were heard recently; `waits` if a place waits for other members."""
        if not waits:
            self._waits_ns = None
        elif self._waits_ns is None:
            self._waits_ns = now
        if heard + 1 < self._needed:
            self._enough_ns = None
        elif self._enough_ns is None:
            self._enough_ns = now
        is_short = heard + 1 < self._needed and now - self._begin_ns >= self.patience_ns
        if (is_short or self.has_waited(now)) and not self.is_cut_off:
            self.is_cut_off = True
            self._emit(CutOff(f"Of the quorum of {self._needed} members {heard + 1} are connected."))
        elif self.is_cut_off and not is_short and not waits:
            self.is_cut_off = False
            self._emit(Resumed())

    def is_stuck(self, now: Nanoseconds, *, contradicted: bool, is_first: bool) -> bool:
        """Whether a place waits in vain: others contradict it, or enough are connected and do not confirm it.

        Where no side had a quorum all members are stuck. Then the first by name stays, and the others take up
        its order; if it is wrong it yields later.
        """
        patience_ns = FIRST_WAITS * self.patience_ns if is_first else self.patience_ns
        since_ns = self._waits_ns if contradicted else self._enough_ns
        has_waited = self._waits_ns is not None and now - self._waits_ns >= patience_ns
        return has_waited and since_ns is not None and now - since_ns >= patience_ns

    def has_waited(self, now: Nanoseconds) -> bool:
        """Whether a place has waited for longer than present members are silent."""
        return self._waits_ns is not None and now - self._waits_ns >= self.patience_ns
