"""What a member learns from reports: order, whether orders differ, and whether it can still follow.

Source: Konorski, section 4.1. `reports` merges another member's graph and history into ours. Digests show
that orders differ, see `agreement`.
"""

from collections.abc import Mapping

from antiphon.core.effects import Disagreed, Forked
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.agreement import UNSEEN, Disagreement
from antiphon.protocols.dpg.context import Context
from antiphon.protocols.dpg.continuity import Continuity, Relation
from antiphon.protocols.dpg.order import Expected, Order
from antiphon.protocols.dpg.pdus import ORIGIN, Report
from antiphon.protocols.dpg.reports import Merged, ReportLists, merge
from antiphon.protocols.dpg.spells import adopt
from antiphon.protocols.dpg.tag_lists import unpack_tags


class ReportMerge:
    """The reports that one member receives; `time_ns` is in its own clock."""

    def __init__(self, context: Context, order: Order) -> None:
        self._configuration = context.configuration
        self._order = order
        self._shared = context.service.reports_ordered
        self._emit = context.emit
        self._continuity = Continuity(context.site, context.configuration.silence_ns)
        self.disagreements = self.forks = 0

    def merge(
        self,
        now: Nanoseconds,
        time_ns: Nanoseconds,
        sender: Site,
        report: Report,
        lists: ReportLists,
        *,
        is_estranged: bool,
    ) -> Merged:
        """Merge another member's report; `is_estranged` if it was silent for long before.

        While both sides of a healed partition are counted, neither takes anything from the other: the smaller
        side will take up the other order as a whole.
        """
        if is_estranged and self._is_fork(report, lists):
            self._continuity.on_report(now, sender, Relation.FORKED)
            if self._continuity.is_settling(now):
                return Merged(news=False, lacking=None, behind=False, apart=False)
            return merge(self._order, time_ns, report.index, report.oldest, lists, shared=self._shared)
        merged = merge(self._order, time_ns, report.index, report.oldest, lists, shared=self._shared)
        relation = Relation.BEYOND if merged.behind else Relation.FOLLOWS
        # Another side may take up what this side has ordered, and so follow, before the sides are counted.
        if (merged.behind or self._continuity.is_undecided(now)) and self._is_fork(report, lists):
            relation = Relation.FORKED
        self._continuity.on_report(now, sender, relation)
        return merged

    def _is_fork(self, report: Report, lists: ReportLists) -> bool:
        checkpoints = unpack_tags(report.checkpoints) or ()
        return self._order.agreement.is_fork(report.index, report.digest, lists.agreed, checkpoints)

    def follows(self, sender: Site) -> bool:
        """Whether its latest report follows on what is known here."""
        return self._continuity.follows(sender)

    def is_settling(self, now: Nanoseconds, sender: Site) -> bool:
        """Whether it is still counted which side of a fork is larger, and this member is on the other."""
        return self._continuity.is_forked(sender) and self._continuity.is_settling(now)

    def has_lost_continuity(self, now: Nanoseconds) -> bool:
        """Whether this member has missed too much to go on."""
        return self._continuity.is_lost(now)

    def adopt(
        self,
        time_ns: Nanoseconds,
        sender: Site,
        report: Report,
        lists: ReportLists,
        streams: Mapping[Site, Expected],
    ) -> bool:
        """Adopt another member's order. Returns whether this member missed something before that.

        `streams` are the next expected numbers in the report that are believable.
        """
        order = self._order
        self.compare(sender, report, lists)
        self._tell_fork(sender, report, lists)
        missed = report.index > order.agreement.index
        adopt(order, time_ns, report, lists, streams)
        merge(order, time_ns, report.index, report.oldest, lists, shared=self._shared)
        return missed

    def compare(self, sender: Site, report: Report, lists: ReportLists) -> None:
        """Emit `Disagreed` if the other's order is not ours."""
        agreement = self._order.agreement
        found = agreement.compare(sender, report.index, report.digest, lists.agreed)
        if found is None and agreement.contradicts(sender, unpack_tags(report.checkpoints) or ()):
            found = Disagreement(None, None, None, UNSEEN)
        if found is not None:
            self.disagreements += 1
            names = self._order.names
            name = names.get(found.mine or ORIGIN) or names.get(found.theirs or ORIGIN) or (None, None)
            first, number = name
            place = None if found.position is None else found.position + self._order.lead
            self._emit(Disagreed(sender, found.reason, first, number, place))

    def _tell_fork(self, sender: Site, report: Report, lists: ReportLists) -> None:
        """Emit `Forked` if this member delivered something that the order which it adopts may not have."""
        agreement, lead = self._order.agreement, self._order.lead
        checkpoints = unpack_tags(report.checkpoints) or ()
        common = agreement.common(report.index, report.digest, lists.agreed, checkpoints)
        first = max(common, agreement.adopted) + 1
        if first <= agreement.index:
            self.forks += 1
            self._emit(Forked(sender, first + lead, agreement.index + lead))

    def on_listener(self, sender: Site) -> None:
        """Another member begins again: it will adopt an order."""
        self._continuity.forget(sender)

    def listen(self) -> None:
        """Reports of before an absence are void."""
        self._continuity.forget()
