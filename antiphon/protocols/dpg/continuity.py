"""Whether this member can go on with its order, or must take up that of others.

A member that missed too much begins a new spell. So does a member on the smaller side of a healed partition:
both sides went on, their orders forked, and the larger side's order is kept. Of two sides of one size, that
with the first name is kept.
"""

from enum import Enum
from typing import Final

from antiphon.core.ids import Site
from antiphon.core.time import SECOND_NS, Nanoseconds
from antiphon.protocols.dpg.spells import is_smaller

BEHIND: Final = 2
"""Reports without a known tag after which this member has missed too much. Raising it costs time then."""
MEMORY_NS: Final[Nanoseconds] = SECOND_NS
"""How long a report counts for or against that. Raising it keeps the reports of members that are gone."""
PATIENCE_NS: Final[Nanoseconds] = SECOND_NS
"""How long a minority may claim that this member missed too much. Raising it costs time if it is right."""
MOST_SITES: Final = 1024
"""Other members whose reports count. Raising it costs memory."""


class Relation(Enum):
    """What another member's latest report is to our order."""

    FOLLOWS = "follows"
    BEYOND = "beyond"
    """It no longer tells what follows our order: we missed too much."""
    FORKED = "forked"
    """Both orders went on differently while neither member heard the other."""


class Continuity:
    """Whether others' reports still follow on what this member knows. A single report may be a lie.

    So it takes more than half of the members that reported recently. A minority that claims it has to claim
    it for a while; a minority whose order forked from ours is never followed.
    """

    def __init__(self, site: Site, settling_ns: Nanoseconds) -> None:
        """Within `settling_ns` all members of both sides of a fork are heard."""
        self._site = site
        self._settling_ns = settling_ns
        self._relations: dict[Site, tuple[Nanoseconds, Relation]] = {}
        """When each member reported last, and what that was to our order."""
        self._since_ns: Nanoseconds | None = None
        """Since when a report does not follow."""
        self._claims = 0
        """Reports since then that do not follow."""

    def on_report(self, now: Nanoseconds, sender: Site, relation: Relation) -> None:
        relations = self._relations
        if sender not in relations and len(relations) >= MOST_SITES:
            del relations[next(iter(relations))]
        relations[sender] = (now, relation)
        if relation is not Relation.FOLLOWS:
            self._claims += 1
            self._since_ns = now if self._since_ns is None else self._since_ns
        elif self._since_ns is not None and len(self._heard(now, Relation.FOLLOWS)) == len(self._lately(now)):
            self._claims, self._since_ns = 0, None

    def follows(self, site: Site) -> bool:
        """Whether a member's latest report follows on what is known here."""
        return site in self._relations and self._relations[site][1] is Relation.FOLLOWS

    def is_forked(self, site: Site) -> bool:
        return site in self._relations and self._relations[site][1] is Relation.FORKED

    def is_settling(self, now: Nanoseconds) -> bool:
        """Whether the sides of a fork are still being counted: until then neither takes up the other's."""
        return self._since_ns is not None and now - self._since_ns < self._settling_ns

    def is_undecided(self, now: Nanoseconds) -> bool:
        """Whether the sides are still being counted, or were counted only just now."""
        return self._since_ns is not None and now - self._since_ns < 2 * self._settling_ns

    def is_lost(self, now: Nanoseconds) -> bool:
        """Whether this member has to take up another order."""
        if self._since_ns is None or self._claims < BEHIND:
            return False
        forked, beyond = self._heard(now, Relation.FORKED), self._heard(now, Relation.BEYOND)
        # What a member reported before the network was split says nothing of its side.
        since_ns = self._since_ns - self._settling_ns
        ours = self._heard(now, Relation.FOLLOWS, since_ns) | {self._site}
        if forked and not self.is_settling(now) and is_smaller(ours, forked):
            return True
        patient = now - self._since_ns <= PATIENCE_NS
        return 2 * len(beyond) > len(self._lately(now)) or (bool(beyond) and not patient)

    def _lately(self, now: Nanoseconds) -> set[Site]:
        return {site for site, (heard_ns, _) in self._relations.items() if now - heard_ns <= MEMORY_NS}

    def _heard(self, now: Nanoseconds, relation: Relation, since_ns: Nanoseconds = 0) -> set[Site]:
        """The members whose latest report is this to our order, and came since then."""
        latest = ((site, self._relations[site]) for site in self._lately(now))
        return {site for site, (heard_ns, kind) in latest if kind is relation and heard_ns >= since_ns}

    def forget(self, site: Site | None = None) -> None:
        """A member begins again, or all reports of before an absence are void."""
        if site is not None:
            self._relations.pop(site, None)
            return
        self._relations.clear()
        self._claims, self._since_ns = 0, None
