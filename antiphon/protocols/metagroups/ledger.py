"""What a site has delivered, over all trees and spells: no message is delivered twice, whatever is said.

An honest sender's numbers only grow, so one mark would do for each sender. A primary site that lies can put a
number of an honest sender in a stream that the sender has not reached: with one mark, all that it sends until
then would count as delivered. So the numbers themselves are kept, as spans.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Final

from antiphon.core.effects import Deliver, Effect, Stable
from antiphon.core.ids import Site
from antiphon.protocols.metagroups.channels import Batch
from antiphon.protocols.metagroups.pdus import MOST_SITES, Life

MOST_SENDERS: Final = 2 * MOST_SITES
"""Senders of which it is known what was delivered. Beyond that the longest silent one without a seat is
forgotten."""
MOST_INCARNATIONS: Final = 4
"""Incarnations of a sender of which this is known; the one that has a seat is kept longest."""
MOST_SPANS: Final = 64
"""Spans of numbers for one incarnation. Beyond that the two with the narrowest gap become one: what an honest
sender sends to groups without this site leaves narrow gaps, which are never filled."""


class Spans:
    """Numbers, as spans in ascending order."""

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
        """Numbers that are not in it."""
        first, last = bisect_left(self._ends, begin), bisect_right(self._begins, end)
        if first < last:  # the span before ends where this one begins, or the next begins where it ends
            begin, end = min(begin, self._begins[first]), max(end, self._ends[last - 1])
        self._begins[first:last], self._ends[first:last] = [begin], [end]
        if len(self) > MOST_SPANS:
            place = min(range(1, len(self)), key=lambda place: self._begins[place] - self._ends[place - 1])
            del self._begins[place], self._ends[place - 1]


class Ledger:
    """Delivers, and remembers what was delivered."""

    __slots__ = ("_delivered", "_effects", "_lives", "_safe", "_site")

    def __init__(self, site: Site, effects: list[Effect], *, safe: bool) -> None:
        self._site = site
        self._effects = effects
        self._safe = safe
        self._lives: Mapping[Site, Life] = {}
        """Who has a seat."""
        self._delivered: dict[Site, dict[int, Spans]] = {}
        """By sender and incarnation; those delivered last stand last."""

    def settle(self, lives: Mapping[Site, Life]) -> None:
        """These have a seat now."""
        self._lives = lives

    def has(self, sender: Site, number: int) -> bool:
        """Whether a message was delivered here: of the incarnation with a seat, or of any if none has one."""
        known = self._delivered.get(sender, {})
        life = self._lives.get(sender)
        spans = known.values() if life is None else [known[life[0]]] if life[0] in known else ()
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
            # A site hears of its own batches from their primary site, also where it is not in the group.
            self._effects.append(Stable(batch.sender, batch.number, batch.length, batch.group))

    def _spans(self, batch: Batch) -> Spans:
        """Those of a batch's incarnation; too many others are forgotten."""
        known = self._delivered.pop(batch.sender, {})
        self._delivered[batch.sender] = known
        spans = known.pop(batch.incarnation, None) or Spans()
        known[batch.incarnation] = spans
        if len(known) > MOST_INCARNATIONS:
            life = self._lives.get(batch.sender)
            del known[next(each for each in known if life is None or each != life[0])]
        if len(self._delivered) > MOST_SENDERS:
            del self._delivered[next(site for site in self._delivered if site not in self._lives)]
        return spans
