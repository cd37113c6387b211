"""What S_CoordP and S_Train share: counts climb a logical tree, and its root multicasts the minima.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 4.3.
The root multicasts START; reports go from member to member and each covers more of the tree; when the root
has counts of all members it multicasts INFO. The two protocols differ only in the paths of reports: see
`antiphon.protocols.stability.s_coordp` and `s_train`.

How it stays sound while members suspect different members. A member's report covers a *span*: a range of
places in the depth-first walk of the tree. It names the members of the span that it lacks; that list is empty
while none is missing, so that the report has the text's size. A member reports when it has counts of all
members of its span that it does not suspect and that report to it, and again whenever it learns more. The
root ends the round only when all members are covered that the root itself does not suspect. Counts are used
on whatever path they come: folding them into a minimum twice changes nothing.

The path of a report avoids suspected members: if the next one is suspected, a member reports to the one after
that, up to the nearest ancestor that is not suspected. A member that waits asks the members that should
report to it, and a member that is asked answers. So counts arrive as soon as detectors agree, and are never
taken for those of other members.

The member that begins a round stands at the root of the tree for that round, and the root's member in its
place: so nothing else changes when the first member has crashed and the next takes over.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Final

from msgspec import structs

from antiphon.core.effects import CancelTimer, Effect, Multicast, Send
from antiphon.core.errors import UsageError
from antiphon.core.fields import Hash, Number
from antiphon.core.ids import Site
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.base import Bitmap, Configuration, CountBytes, Counts, read_counts
from antiphon.protocols.stability.coordp import Information, StartRound
from antiphon.protocols.stability.hierarchy import Hierarchy
from antiphon.protocols.stability.numbered import Numbered

REPEAT: Final = "repeat"
"""Report again, or ask members that have not reported."""


class Report(Pdu, frozen=True, gc=False):
    """ACK: the least counts of all in the sender's span, but for those named as lacking.

    `lacking` is a bitmap over the span, empty if no member is lacking. A protocol gives it a code.
    """

    round: Number
    counts: CountBytes
    lacking: Bitmap = b""
    view: Hash = 0
    repeated: bool = False
    """Whether it answers a START that was sent before, or was sent before itself."""


@dataclass(frozen=True, kw_only=True)
class StructuredConfiguration(Configuration):
    """The knobs of the structured protocols."""

    hierarchy: Hierarchy | None = None
    """The logical tree, shared by all members; by default a complete one over the members in order."""
    subgroup: int = 4
    """A parent and its children in the default tree. Larger ones make the tree lower and, at S_CoordP's
    parents, more reports arrive at once; a train of S_Train takes a step for each child."""

    def __post_init__(self) -> None:
        if self.subgroup < 2:
            raise UsageError(f"A sub-group of {self.subgroup} has no children.", hint="Take 2 or more.")


@lru_cache(maxsize=8)
def _default_hierarchy(order: tuple[Site, ...], subgroup: int) -> Hierarchy:
    return Hierarchy.complete(order, subgroup - 1)


class Structured(Numbered):
    """One member's part; a protocol defines the paths of reports."""

    __slots__ = (
        "_awaiting", "_covered", "_end", "_finished", "_first", "_hierarchy", "_is_late", "_least", "_root",
        "_stand", "_to", "_told",
    )  # fmt: skip

    def __init__(
        self,
        site: Site,
        members: Sequence[Site],
        senders: Sequence[Site],
        configuration: StructuredConfiguration | None = None,
        random: Random | None = None,
    ) -> None:
        knobs = configuration or StructuredConfiguration()
        super().__init__(site, members, senders, knobs, random)
        hierarchy = knobs.hierarchy or _default_hierarchy(self._order, knobs.subgroup)
        if len(hierarchy) != len(self._order) or site not in hierarchy.place:
            raise UsageError("The hierarchy must have the group's members and no others.")
        self._hierarchy = hierarchy
        self._awaiting = False
        """Whether the result of the round is not known here yet."""
        self._root = 0
        """The place of the hierarchy whose member stands at the root in this round."""
        self._stand = 0
        """Our place in this round."""
        self._first, self._end = 0, 0
        """Our span: the places that our report covers."""
        self._covered = 0
        """Whose counts are in, as bits from the span's first place on."""
        self._told = 0
        """The same of our last report; 0 if we have not reported."""
        self._to: Site | None = None
        self._is_late = False
        """Whether we learnt of the round by a START that was repeated."""
        self._least: Counts | None = None
        self._finished: Information | None = None

    @property
    def under_way(self) -> bool:
        """Whether a round that this member knows has not ended here."""
        return self._awaiting

    def abandon(self) -> None:
        self._awaiting = False

    # The paths of reports

    @abstractmethod
    def _span(self, place: int) -> tuple[int, int]:
        """The first place that a member's report covers, and the one after the last."""

    @abstractmethod
    def _superiors(self) -> Iterator[int]:
        """The places that we report to: the first whose member is not suspected; the root is last."""

    @abstractmethod
    def _reporters(self) -> Iterator[int]:
        """The places of the members that should report to us, if all suspect the same members."""

    @abstractmethod
    def _excused(self, place: int) -> int:
        """Who need not be covered by us when the member at a place of our span is suspected: bits."""

    @abstractmethod
    def _report_kind(self, to: Site) -> type[Report]:
        """What a report to this member is called."""

    # The root asks

    def _begin(self) -> list[Effect]:
        self._enter(self._next_number(self.site))
        self._again = False
        if self._is_complete():
            return self._finish()
        return [Multicast(StartRound(self._round, self._view)), *self._wait_for_reports()]

    def _enter(self, number: int) -> None:
        """Take part in a round; one of ours that it passes over must be made up for."""
        if self._awaiting and self._owner(self._round) == self.site:
            self._again = True
        self._round, self._awaiting = number, True
        self._root = self._hierarchy.place[self._owner(number)]
        self._stand = self._place_of(self.site)
        self._first, self._end = self._span(self._stand)
        self._covered = 1 << (self._stand - self._first)
        self._told, self._to, self._least, self._is_late = 0, None, None, False
        if self.trips is not None:
            self.trips.answers.drop()
            self.trips.result.drop()

    def _wait_for_reports(self) -> list[Effect]:
        return self._first_wait(REPEAT, self._for_answers)

    def _on_pdu(self, sender: Site, pdu: Pdu) -> list[Effect]:
        if isinstance(pdu, Report):
            return self._on_report(sender, pdu)
        if type(pdu) is StartRound:
            return self._on_start(sender, pdu)
        return self._on_information(pdu) if type(pdu) is Information else self._ignore()

    def _on_start(self, sender: Site, pdu: StartRound) -> list[Effect]:
        """From the root, or from a member that waits for our report."""
        number = pdu.round
        if not self._is_round(number):
            return self._ignore()
        if number > self._round:
            return self._join(number, is_late=pdu.repeated)
        if number < self._round:
            return [Send(sender, self._news())]
        if self._awaiting:
            return [Send(sender, self._report(sender, repeated=True))] if self._is_complete() else []
        # We know the result. So does the root, but a member that passes START on does not.
        return [] if self._owner(number) == sender else [Send(sender, self._news())]

    def _join(self, number: int, *, is_late: bool = False) -> list[Effect]:
        if self._owner(number) == self.site:
            return self._on_past(number)
        self._enter(number)
        self._is_late = is_late
        if self._owner(number) in self._suspected:
            return self._turn()
        return self._wait_for_reports() if not self._is_complete() else self._advance()

    def _join_by_report(self, number: int) -> list[Effect]:
        """START has not come here: what answers take from now on is not what they take."""
        effects = self._join(number)
        if self.trips is not None:
            self.trips.answers.drop()
        return effects

    def _on_past(self, number: int) -> list[Effect]:
        """A round of ours that we do not know, say after a restart; others may wait for its result."""
        self._round, self._awaiting = number, False
        return self._begin() if self.coordinator == self.site else []

    # Reports climb

    def _on_report(self, sender: Site, pdu: Report) -> list[Effect]:
        if not self._makes_sense(pdu.round, pdu.counts):
            return self._ignore()
        # A member that reports knows its round, maybe before us.
        effects = self._join_by_report(pdu.round) if pdu.round > self._round else []
        if pdu.round < self._round or not self._awaiting:
            return effects or [Send(sender, self._news())]
        first, end = self._span(place := self._place_of(sender))
        covered = self._read_covered(pdu.lacking, place, first, end)
        if covered is None:
            return self._ignore()
        if first < self._first or end > self._end:
            return effects  # it takes us for the owner of a round in the place of a crashed member
        covered <<= first - self._first
        if covered & ~self._covered:
            self._covered |= covered
            if not pdu.repeated:
                self._note_answer()
            self._fold(read_counts(pdu.counts))
            effects += self._advance()
        return effects

    def _read_covered(self, lacking: bytes, place: int, first: int, end: int) -> int | None:
        """The members that a report covers, as bits; None if it makes no sense."""
        everyone = (1 << (end - first)) - 1
        if not lacking:
            return everyone
        missing = int.from_bytes(lacking, "little")
        sound = len(lacking) <= (end - first + 7) // 8 and not missing >> (end - first)
        return everyone & ~missing if sound and not missing >> (place - first) & 1 else None

    def _fold(self, counts: Counts) -> None:
        self._least = counts if self._least is None else self._objective.fold(self._least, counts)

    def _advance(self) -> list[Effect]:
        """Report, or end the round, if all required members are covered and there is something new."""
        owner = self._owner(self._round)
        if owner in self._suspected or not self._is_complete():
            return []
        if owner == self.site:
            return self._finish()
        to = self._superior()
        if (self._told, self._to) == (self._covered, to):
            return []
        self._told, self._to = self._covered, to
        self._note_all_answers()
        report = self._report(to, repeated=self._is_late)
        return [Send(to, report), *self._first_wait(REPEAT, self._for_result)]

    def _superior(self) -> Site:
        sites = (self._site_at(place) for place in self._superiors())
        return next(site for site in sites if site not in self._suspected)

    def _is_complete(self) -> bool:
        return not self._needed() & ~self._covered

    def _needed(self) -> int:
        """The members that we must cover before we report."""
        needed = (1 << (self._end - self._first)) - 1
        for site in self._suspected:
            place = self._place_of(site)
            if self._first <= place < self._end:
                needed &= ~self._excused(place)
        return needed

    def _bits(self, first: int, end: int) -> int:
        """The places of a range within our span."""
        return ((1 << (end - first)) - 1) << (first - self._first)

    def _report(self, to: Site, *, repeated: bool) -> Report:
        lacking = (1 << (self._end - self._first)) - 1 & ~self._covered
        bitmap = lacking.to_bytes((lacking.bit_length() + 7) // 8, "little")
        counts = self._fold_held(self._least).tobytes()
        return self._report_kind(to)(self._round, counts, bitmap, self._view, repeated)

    # The root multicasts the result

    def _finish(self) -> list[Effect]:
        result = self._result(self._fold_held(self._least))
        self.rounds_finished += 1
        finished = Information(self._round, result.tobytes(), self._view)
        effects = self._end_round(finished)
        return [*effects, Multicast(finished), *self._declare(result), *self._begin_again()]

    def _end_round(self, finished: Information) -> list[Effect]:
        self._note_all_answers()
        self._note_result(repeated=finished.repeated)
        self._finished, self._awaiting, self._least = structs.replace(finished, repeated=True), False, None
        return [] if self._repetition is None else [CancelTimer(REPEAT)]

    def _on_information(self, pdu: Information) -> list[Effect]:
        ours = self._awaiting and self._owner(self._round) == self.site
        if not self._is_sound_result(pdu.round, pdu.stable) or (ours and pdu.round == self._round):
            return self._ignore()
        effects: list[Effect] = []
        if pdu.round > self._round or (pdu.round == self._round and self._awaiting):
            self._again = self._again or ours
            self._round = pdu.round
            effects = self._end_round(pdu)
        return effects + self._take_result(pdu.stable) + ([] if self._awaiting else self._begin_again())

    def _news(self) -> Pdu:
        """What a member lacks that is behind: the result, or the round under way."""
        if self._awaiting or self._finished is None:
            return StartRound(self._round, self._view, repeated=True)
        return self._finished

    # Loss

    def _on_timer(self, name: str) -> list[Effect]:
        if name != REPEAT or not self._awaiting:
            return []
        owner = self._owner(self._round)
        if owner in self._suspected:
            return self._turn()
        if owner != self.site and self._is_complete():
            to = self._superior()
            return [Send(to, self._report(to, repeated=True)), *self._next_wait(REPEAT, self._for_result)]
        return self._ask() + self._next_wait(REPEAT, self._for_answers)

    def _ask(self) -> list[Effect]:
        """Pass START on to members that should have reported."""
        missing = self._needed() & ~self._covered
        silent = [place for place in self._reporters() if missing & self._bits(*self._span(place))]
        if not silent:
            return []
        start = StartRound(self._round, self._view, repeated=True)
        return [Multicast(start, tuple(self._site_at(place) for place in silent))]

    # Crashes

    def _on_suspected(self, site: Site) -> list[Effect]:
        owner = self._owner(self._round)
        if not self._awaiting:
            return []
        if owner in self._suspected:
            return self._turn() if site in (owner, self._to) else []
        return self._advance()

    def _turn(self) -> list[Effect]:
        """The root is gone: the first member that is not must begin a round in its place."""
        to = self.coordinator
        if to == self.site:
            return self._begin()
        self._told, self._to = 0, to
        return [Send(to, self._report(to, repeated=True)), *self._next_wait(REPEAT, self._for_result)]

    def _on_restored(self, site: Site) -> list[Effect]:
        """A member that is back is waited for again, and may be the one to report to."""
        if not self._awaiting or self._owner(self._round) in self._suspected:
            return []
        place = self._place_of(site) - self._first
        uncovered = 0 <= place < self._end - self._first and not self._covered >> place & 1
        asked: list[Effect] = (
            [Send(site, StartRound(self._round, self._view, repeated=True))] if uncovered else []
        )
        return asked + self._advance()

    # Places in this round

    def _place_of(self, site: Site) -> int:
        """Swap the root's place with that of the member that has begun the round."""
        place = self._hierarchy.place[site]
        if place == self._root:
            return 0
        return place if place else self._root

    def _site_at(self, place: int) -> Site:
        walk = self._hierarchy.walk
        if place == self._root:
            return walk[0]
        return walk[place] if place else walk[self._root]

    def _is_suspected(self, place: int) -> bool:
        return bool(self._suspected) and self._site_at(place) in self._suspected
