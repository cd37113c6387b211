"""What a site has delivered, on all trees and in all sessions: it delivers no message twice, whatever comes.

An honest sender's numbers only grow, so the highest number would be enough for each sender. But a primary
site that lies can put a number into a stream that the honest sender has not reached. Then everything that it
sends up to that number would count as delivered. So the numbers themselves are kept, as spans.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Final

from antiphon.core.effects import Deliver, Effect, Stable
from antiphon.core.ids import Site
from antiphon.protocols.metagroups.channels import Batch
from antiphon.protocols.metagroups.pdus import MOST_SITES, Session

MOST_SENDERS: Final = 2 * MOST_SITES
"""Senders whose deliveries are remembered. Beyond that, of the senders outside the view the one that was
delivered from the longest ago is forgotten. Raising it costs memory."""
MOST_INCARNATIONS: Final = 4
"""Incarnations of a sender whose deliveries are remembered; the one in the view is forgotten last."""
MOST_SPANS: Final = 64
"""Spans of numbers for one incarnation. Beyond that, the two with the narrowest gap are joined: messages of
an honest sender to other groups leave narrow gaps, which are never filled. Raising it costs memory."""


class Spans:
    """A set of numbers, as spans in ascending order."""

    __slots__ = ("_begins", "_ends")

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        return len(self._begins)

    def meets(self, begin: int, end: int) -> bool:
        """Whether any number from `begin` on and before `end` is in it."""
        place = bisect_right(self._ends, begin)
        return place < len(self._begins) and self._begins[place] < end

    def add(self, begin: int, end: int) -> None:
        """Add numbers that are not in it."""
        first, last = bisect_left(self._ends, begin), bisect_right(self._begins, end)
        if first < last:  # the span before ends where this one begins, or the next begins where it ends
            begin, end = min(begin, self._begins[first]), max(end, self._ends[last - 1])
        self._begins[first:last], self._ends[first:last] = [begin], [end]
        if len(self) > MOST_SPANS:
            place = min(range(1, len(self)), key=lambda place: self._begins[place] - self._ends[place - 1])
            del self._begins[place], self._ends[place - 1]


class Ledger:
    """Delivers, and remembers what was delivered."""

    __slots__ = ("_delivered", "_effects", "_safe", "_sessions", "_site")

    def __init__(self, site: Site, effects: list[Effect], *, safe: bool) -> None:
        self._site = site
        self._effects = effects
        self._safe = safe
        self._sessions: Mapping[Site, Session] = {}
        """The sites of the view."""
        self._delivered: dict[Site, dict[int, Spans]] = {}
        """By sender and incarnation, in the order of their last delivery."""

    def on_view(self, sessions: Mapping[Site, Session]) -> None:
        """The view lists these sites now."""
        self._sessions = sessions

    def has(self, sender: Site, number: int) -> bool:
        """Whether a message was delivered: of the incarnation in the view, or of any if none is in it."""
        known = self._delivered.get(sender, {})
        session = self._sessions.get(sender)
        spans = known.values() if session is None else [known[session[0]]] if session[0] in known else ()
        return any(each.meets(number, number + 1) for each in spans)

    def deliver(self, batch: Batch) -> None:
        """Hand a batch to the application, unless any of it was delivered before."""
        assert batch.bodies is not None, "only what is held is delivered"
        spans = self._spans(batch)
        end = batch.number + batch.length
        if spans.meets(batch.number, end):
            return
        spans.add(batch.number, end)
        self._effects.append(
            Deliver(batch.sender, batch.number, batch.bodies, batch.group, batch.incarnation)
        )
        if self._safe and batch.sender != self._site:
            # A sender learns from the primary site that its batches are stable, in the group or not.
            self._effects.append(Stable(batch.sender, batch.number, batch.length, batch.group))

    def _spans(self, batch: Batch) -> Spans:
        """The spans of a batch's incarnation; others beyond the bounds are forgotten."""
        known = self._delivered.pop(batch.sender, {})
        self._delivered[batch.sender] = known
        spans = known.pop(batch.incarnation, None) or Spans()
        known[batch.incarnation] = spans
        if len(known) > MOST_INCARNATIONS:
            session = self._sessions.get(batch.sender)
            del known[next(each for each in known if session is None or each != session[0])]
        if len(self._delivered) > MOST_SENDERS:
            del self._delivered[next(site for site in self._delivered if site not in self._sessions)]
        return spans
