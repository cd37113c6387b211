"""What a member learns from others' reports: order, whether theirs is its own, and whether it still follows.

Source: Konorski, section 4.1; how another's graph and history are joined with ours is in `reporting`. That
orders have gone apart is told by digests, see `agreement`.
"""

from collections.abc import Callable
from typing import Final

from antiphon.core.effects import Disagreed, Effect
from antiphon.core.ids import Site
from antiphon.core.time import SECOND_NS, Nanoseconds
from antiphon.protocols.dpg.order import Expected, Order
from antiphon.protocols.dpg.pdus import ORIGIN, Report
from antiphon.protocols.dpg.reporting import Learned, Told, unite
from antiphon.protocols.dpg.spells import take_up

BEHIND: Final = 2
"""Reports that tell nothing we know before we hold that we have missed too much."""
MEMORY_NS: Final[Nanoseconds] = SECOND_NS
"""How long a member's report counts for or against that. Raising it keeps the word of those who are gone."""
PATIENCE_NS: Final[Nanoseconds] = SECOND_NS
"""How long a few may hold that we have missed too much. Raising it costs time when they are right."""
MOST_SITES: Final = 1024
"""Other members whose reports count. Raising it costs memory."""


class Touch:
    """Whether others' reports still follow on what we know: a member that says otherwise may lie or be lost.

    So it takes more than half of those who have reported lately; or, if those who know better are few, time.
    """

    def __init__(self) -> None:
        self._followed: dict[Site, tuple[Nanoseconds, bool]] = {}
        """When each reported last, and whether that followed on what we know."""
        self._since_ns: Nanoseconds | None = None
        """Since when one of them does not."""
        self._beyond = 0
        """Reports of such since then."""

    def heard(self, now: Nanoseconds, sender: Site, *, behind: bool) -> None:
        followed = self._followed
        if sender not in followed and len(followed) >= MOST_SITES:
            del followed[next(iter(followed))]
        followed[sender] = (now, not behind)
        if behind:
            self._beyond += 1
            self._since_ns = now if self._since_ns is None else self._since_ns
        elif self._since_ns is not None and not self._claimants(now):
            self._beyond, self._since_ns = 0, None

    def is_lost(self, now: Nanoseconds) -> bool:
        """Whether we have missed too much to go on."""
        if self._since_ns is None or self._beyond < BEHIND:
            return False
        lately = sum(now - heard_ns <= MEMORY_NS for heard_ns, _ in self._followed.values())
        claimants = self._claimants(now)
        return 2 * claimants > lately or (claimants > 0 and now - self._since_ns > PATIENCE_NS)

    def _claimants(self, now: Nanoseconds) -> int:
        return sum(
            not follows and now - heard_ns <= MEMORY_NS for heard_ns, follows in self._followed.values()
        )

    def forget(self) -> None:
        self._followed.clear()
        self._beyond, self._since_ns = 0, None


class Learning:
    """One member's; `time_ns` is in its own clock."""

    def __init__(self, order: Order, emit: Callable[[Effect], None], *, shared: bool) -> None:
        """`shared` tells whether reports and messages share a channel."""
        self._order = order
        self._shared = shared
        self._emit = emit
        self._touch = Touch()
        self.disagreements = 0

    def learn(
        self, now: Nanoseconds, time_ns: Nanoseconds, sender: Site, report: Report, told: Told
    ) -> Learned:
        """Take in what another reports."""
        learned = unite(self._order, time_ns, report.index, told, shared=self._shared)
        self._touch.heard(now, sender, behind=learned.behind)
        return learned

    def has_lost_touch(self, now: Nanoseconds) -> bool:
        """Whether we have missed too much to go on."""
        return self._touch.is_lost(now)

    def take_up(
        self, time_ns: Nanoseconds, sender: Site, report: Report, told: Told, own: tuple[Site, Expected]
    ) -> bool:
        """Go on from where another is, whatever we know; whether we have missed something before that.

        `own` is who we are, and our next message.
        """
        order = self._order
        self.compare(sender, report, told)
        missed = report.index > order.agreement.index
        take_up(order, time_ns, report, told, own)
        unite(order, time_ns, report.index, told, shared=self._shared)
        return missed

    def compare(self, sender: Site, report: Report, told: Told) -> None:
        """Say so if the other's order is not ours."""
        found = self._order.agreement.compare(sender, report.index, report.digest, told.agreed)
        if found is not None:
            self.disagreements += 1
            names = self._order.names
            name = names.get(found.mine or ORIGIN) or names.get(found.theirs or ORIGIN) or (None, None)
            self._emit(Disagreed(sender, found.reason, *name))

    def listen(self) -> None:
        """After an absence nobody has left us behind yet."""
        self._touch.forget()
