"""A claim to be the sequencer while it waits for answers, and the members that may answer."""

from typing import Final

from antiphon.core.ids import Site
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.protocols.dpg.services.tag_sequencer.numbering import MOST_SENDERS
from antiphon.protocols.dpg.services.tag_sequencer.pdus import NO_EPOCH, Epoch

RECENT_NS: Final[Nanoseconds] = 500 * MILLISECOND_NS
"""A member heard within this time is expected to answer a claim. Raising it costs a longer halt."""

MOST_STANDSTILLS: Final = 8
"""Standstills for which one claim waits longer. Raising it costs time on a machine so busy that every timer
is late; lowering it costs answers that wait to be read there."""


class Neighbours:
    """The members that were heard, and when."""

    def __init__(self) -> None:
        self._heard_ns: dict[Site, Nanoseconds] = {}

    def __len__(self) -> int:
        return len(self._heard_ns)

    def note(self, now: Nanoseconds, site: Site) -> None:
        heard_ns = self._heard_ns
        if site not in heard_ns and len(heard_ns) >= MOST_SENDERS:
            del heard_ns[next(iter(heard_ns))]
        heard_ns[site] = now

    def leave(self, site: Site) -> None:
        self._heard_ns.pop(site, None)

    def recent(self, now: Nanoseconds) -> frozenset[Site]:
        """The members heard recently."""
        return frozenset(site for site, heard_ns in self._heard_ns.items() if heard_ns > now - RECENT_NS)


class ClaimRound:
    """Which members have answered a claim, and the numbers that all of them know.

    It is complete when every awaited member has answered. Where no member is known, others may be about to
    claim as well: then only the deadline ends it. Others refuse a claim whose counter leaps, as that of a
    member that believed a liar does: they answer with an epoch below the claimed one.

    A claimant that several members could answer, and that none answers, is more likely cut off for a moment
    than alone. It waits for `RECENT_NS` instead of the usual time: if it went on at once, the others would
    give the same numbers to other messages.
    """

    def __init__(
        self,
        awaited: frozenset[Site],
        through: int,
        now: Nanoseconds,
        wait_ns: Nanoseconds,
        *,
        is_first: bool,
    ) -> None:
        self.known_by_all = through
        self._deadline_ns = now + wait_ns
        self._alone_ns = now + (max(wait_ns, RECENT_NS) if len(awaited) > 1 else wait_ns)
        self._wait_ns = wait_ns
        self._missing = set(awaited)
        self._accepting: set[Site] = set()
        self._refusing: dict[Site, Epoch] = {}
        self._is_first = is_first
        self._standstills = 0

    def hear(self, site: Site, through: int) -> None:
        """A member has answered that it knows all numbers up to `through`."""
        self._missing.discard(site)
        self._accepting.add(site)
        self._refusing.pop(site, None)
        if through:  # a newcomer that knows no number needs none of the old ones
            self.known_by_all = min(self.known_by_all, through)

    def refuse(self, site: Site, epoch: Epoch) -> None:
        """A member has answered with an epoch below ours: it refuses the claim, or has not heard it yet."""
        if epoch != NO_EPOCH and site not in self._accepting:
            self._refusing[site] = epoch

    def refused_for(self) -> Epoch | None:
        """The latest epoch of the members that refuse, if they are the majority; else None."""
        if len(self._refusing) <= len(self._accepting):
            return None
        return max(self._refusing.values())

    def stood_still(self, now: Nanoseconds) -> None:
        """This process stood still: the answers of that time are yet to be read.

        On a very busy machine it does so again and again, and a claim must end there, too.
        """
        self._standstills += 1
        if self._standstills > MOST_STANDSTILLS:
            return
        self._deadline_ns = max(self._deadline_ns, now + self._wait_ns)
        self._alone_ns = max(self._alone_ns, now + self._wait_ns)

    def is_complete(self) -> bool:
        """Whether every member that could answer has answered."""
        return not (self._missing or self._is_first)

    def is_over(self, now: Nanoseconds) -> bool:
        """Whether to go on with the answers that have come."""
        has_answers = bool(self._accepting or self._refusing)
        return self.is_complete() or now >= (self._deadline_ns if has_answers else self._alone_ns)
