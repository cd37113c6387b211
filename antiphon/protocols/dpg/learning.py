"""What a member learns from others' reports: order, whether theirs is its own, and whether it still follows.

Source: Konorski, section 4.1; how another's graph and history are joined with ours is in `reporting`. That
orders have gone apart is told by digests, see `agreement`.
"""

from collections.abc import Callable
from typing import Final

from antiphon.core.effects import Disagreed, Effect
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.order import Order
from antiphon.protocols.dpg.pdus import ORIGIN, Report
from antiphon.protocols.dpg.reporting import Learned, Told, unite
from antiphon.protocols.dpg.spells import take_up

BEHIND: Final = 2
"""Reports in a row that tell nothing we know before we hold that we have missed too much."""


class Learning:
    """One member's; `time_ns` is in its own clock."""

    def __init__(self, order: Order, emit: Callable[[Effect], None], *, shared: bool) -> None:
        """`shared` tells whether reports and messages share a channel."""
        self._order = order
        self._shared = shared
        self._emit = emit
        self._behind = 0
        self.disagreements = 0

    def learn(self, time_ns: Nanoseconds, report: Report, told: Told) -> Learned:
        """Take in what another reports."""
        learned = unite(self._order, time_ns, report.index, told, shared=self._shared)
        self._behind = self._behind + 1 if learned.behind else 0
        return learned

    def has_lost_touch(self) -> bool:
        """Whether we have missed too much to go on."""
        return self._behind >= BEHIND

    def take_up(self, time_ns: Nanoseconds, sender: Site, report: Report, told: Told) -> bool:
        """Go on from where another is, whatever we know; whether we have missed something before that."""
        order = self._order
        self.compare(sender, report, told)
        missed = report.index > order.agreement.index
        take_up(order, time_ns, report, told)
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
        self._behind = 0
