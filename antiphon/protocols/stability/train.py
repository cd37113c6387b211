"""Train: an array of counts goes round the members twice, to gather the minima and to distribute them.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 4.2.3.
The members have a cyclic order. The first sends its counts to the second as an ACK; each takes the least of
what has come and of what it holds, and sends that on. When the ACK is back, the first member has the minima,
and sends them round the same way as an INFO.

Assumes: a failure detector that reports crashes by Suspected and Restored, and an owner that reports what is
held. Nothing is assumed of the network: PDUs may be lost, repeated and reordered.
Guarantees: the member that began a round ends it only when every member that it does not suspect has put its
counts on the train; a member declares stable only what it holds itself and what all of those hold (checker:
stability); what has been declared is never taken back; a round that was triggered ends once PDUs get through
and the crashed are suspected.

Deviations from the text, and why:
- Those of all the protocols (`antiphon.protocols.stability.base`, `numbered`).
- The text's members repeat the train to the next one for ever. Here they repeat it until the next one has
  confirmed it with a receipt. After that they repeat an ACK only now and then, until they know the result: a
  member that knows it answers with it. Without repetition there are no receipts and a round sends what the
  text counts.
- The text does not treat crashes. A member that forwards the train bypasses members that it suspects; from
  then on the train carries a bitmap of the members that it has yet to visit. If it comes back without a
  member that the first member does not suspect, it makes another lap for the members left out. If the next
  member is suspected, a member sends the train to the one after it, if need be for the second time; a member
  that has seen a lap of the train does not forward it again.
- If the member that began a round is suspected, members that wait for the result turn to the first in order
  that is not suspected, which begins a round of its own.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, ClassVar, Final, TypeAlias

from msgspec import Meta

from antiphon.core.effects import CancelTimer, Effect, Send
from antiphon.core.fields import MOST_NAMES, Hash, Number
from antiphon.core.ids import Site
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.base import Bitmap, Configuration, CountBytes, read_counts
from antiphon.protocols.stability.numbered import Numbered
from antiphon.protocols.stability.round_trips import RoundTrip

REPEAT: Final = "repeat"
"""Repeat the train to a member that has not confirmed it, or ask for the result."""


Lap: TypeAlias = Annotated[int, Meta(ge=0, lt=4 * MOST_NAMES)]
"""Laps of a train before this one: each visits a member that was left out."""


class Carriage(Pdu, frozen=True, gc=False):
    """ACK while counts are gathered, INFO when they are the result: a count for each sender of messages.

    `unvisited` is empty while the train has bypassed no member: then exactly those after the receiver are
    left. Otherwise it is a bitmap of them by place in the cyclic order, from the member that began the round.
    """

    code: ClassVar[int] = 20
    round: Number
    lap: Lap
    counts: CountBytes
    result: bool = False
    unvisited: Bitmap = b""
    view: Hash = 0


class Receipt(Pdu, frozen=True, gc=False):
    """The train has come; or, with a greater round than its own, it belongs to the past."""

    code: ClassVar[int] = 21
    round: Number
    lap: Lap
    result: bool = False
    view: Hash = 0


PDUS: Final = (Carriage, Receipt)


class Train(Numbered):
    """One member's part. Its owner reports what is held with `hold`, and forwards inputs and effects."""

    __slots__ = (
        "_awaiting", "_collecting", "_confirmed", "_finished", "_lap", "_left", "_sent", "_to", "_toured",
        "_unvisited",
    )  # fmt: skip

    def __init__(
        self,
        site: Site,
        members: Sequence[Site],
        senders: Sequence[Site],
        configuration: Configuration | None = None,
        random: Random | None = None,
    ) -> None:
        super().__init__(site, members, senders, configuration or Configuration(), random)
        # As a member: the last lap seen of the round, and whether its result is still awaited.
        self._lap = -1
        self._awaiting = False
        # As the owner of the round: whether it lasts, which members are left, which this lap is to visit.
        self._collecting = False
        self._left = 0
        self._toured = 0
        # What was forwarded last, where to, and the places still to visit (None: all after us).
        self._sent: Carriage | None = None
        self._to: Site | None = None
        self._unvisited: int | None = None
        self._confirmed = False
        self._finished: Carriage | None = None

    @property
    def under_way(self) -> bool:
        """Whether this member waits for the result of a round."""
        return self._collecting or self._awaiting

    def abandon(self) -> None:
        self._collecting = self._awaiting = False

    def _on_pdu(self, sender: Site, pdu: Pdu) -> list[Effect]:
        if type(pdu) is Carriage:
            if not self._makes_sense(pdu.round, pdu.counts):
                return self._ignore()
            return self._on_information(sender, pdu) if pdu.result else self._on_train(sender, pdu)
        return self._on_receipt(sender, pdu) if type(pdu) is Receipt else self._ignore()

    # The first lap: gathering

    def _begin(self) -> list[Effect]:
        self._round, self._lap = self._next_number(self.site), 0
        self._again = self._awaiting = False
        self._collecting = True
        self._left = self._toured = (1 << len(self._order)) - 2
        return self._tour(self._held.tobytes())

    def _tour(self, counts: bytes) -> list[Effect]:
        """Send the train off to those left, or end the round if there are none to visit."""
        wanted = self._left & ~self._places(self._suspected)
        if not wanted:
            return self._finish(counts)
        first_lap_for_all = self._lap == 0 and not self._suspected
        self._toured, self._unvisited = wanted, None if first_lap_for_all else wanted
        return self._depart(counts)

    def _on_train(self, sender: Site, pdu: Carriage) -> list[Effect]:
        unvisited = self._read_unvisited(sender, pdu)
        if unvisited is None:
            return self._ignore()
        if pdu.round < self._round:
            return [Send(sender, self._news(pdu))]
        if pdu.round > self._round and self._owner(pdu.round) == self.site:
            return self._on_past(pdu.round)
        if pdu.round == self._round:
            if self._collecting:
                return self._on_return(sender, pdu, unvisited)
            if not self._awaiting and self._finished is not None and self._finished.round == pdu.round:
                return [Send(sender, self._finished)]
            if pdu.lap <= self._lap:
                return self._receipt(sender, pdu)
        return self._receipt(sender, pdu) + self._take(pdu, unvisited)

    def _take(self, pdu: Carriage, unvisited: int) -> list[Effect]:
        """Put our counts on a train that we have not seen, and send it on."""
        self._give_way(pdu.round)
        self._lap, self._awaiting = pdu.lap, True
        counts = self._objective.fold(read_counts(pdu.counts), self._held).tobytes()
        place = self._place_of(self.site)
        self._unvisited = unvisited & ~(1 << place) if pdu.unvisited else None
        return self._depart(counts)

    def _on_return(self, sender: Site, pdu: Carriage, unvisited: int) -> list[Effect]:
        """The train is back; another lap visits the members that it left out."""
        if pdu.lap != self._lap:
            return self._receipt(sender, pdu)
        return self._receipt(sender, pdu) + self._lap_over(pdu.counts, unvisited if pdu.unvisited else 0)

    def _lap_over(self, counts: bytes, unvisited: int) -> list[Effect]:
        self._left &= ~(self._toured & ~unvisited)
        self._lap += 1
        return self._tour(counts)

    # The second lap: telling

    def _finish(self, counts: bytes) -> list[Effect]:
        result = self._result(self._fold_held(read_counts(counts)))
        self._collecting = False
        self._note_result(repeated=False)
        self.rounds_finished += 1
        self._finished = Carriage(self._round, 0, result.tobytes(), result=True, view=self._view)
        return self._declare(result) + self._tell(self._finished) + self._begin_again()

    def _on_information(self, sender: Site, pdu: Carriage) -> list[Effect]:
        if not self._is_sound_result(pdu.round, pdu.counts):
            return self._ignore()
        if self._collecting and pdu.round == self._round:
            return self._ignore()  # only this member can know
        receipt = self._receipt(sender, pdu)
        if self._finished is not None and pdu.round <= self._finished.round:
            return receipt
        current = pdu.round >= self._round
        if current:
            self._give_way(pdu.round)
            self._awaiting = False
        self._finished = pdu
        self._note_result(repeated=False)
        effects = receipt + self._take_result(pdu.counts) + (self._tell(pdu) if current else [])
        return effects + (self._begin_again() if current else [])

    def _tell(self, pdu: Carriage) -> list[Effect]:
        """Send the result on; back at the member that found it, it has come to its end."""
        self._sent = pdu
        return self._send_on(self._next_to_tell())

    def _next_to_tell(self) -> Site | None:
        for place in range(self._place_of(self.site) + 1, len(self._order)):
            if (site := self._site_at(place)) not in self._suspected:
                return site
        owner = self._owner(self._round)
        return None if owner == self.site or owner in self._suspected else owner

    # Where the train goes next

    def _depart(self, counts: bytes) -> list[Effect]:
        """Send an ACK on from here."""
        self._sent = Carriage(self._round, self._lap, counts, view=self._view)
        return self._route()

    def _route(self) -> list[Effect]:
        """Forward the train to the next stop; without one the lap is over, or a round without its owner."""
        sent = self._sent
        assert sent is not None, "what is routed has been made"
        stop = self._next_stop()
        if stop == self.site:
            return self._lap_over(sent.counts, self._still_unvisited()) if self._collecting else self._begin()
        if self._unvisited is not None or stop != self._site_at(self._place_of(self.site) + 1):
            bitmap = self._still_unvisited().to_bytes(self._bitmap_bytes(), "little")
            self._sent = Carriage(sent.round, sent.lap, sent.counts, unvisited=bitmap, view=self._view)
        return self._send_on(stop)

    def _next_stop(self) -> Site:
        """The next one to be visited, past those suspected, or the member that began the round.

        If that is gone, the first member that is not must begin another.
        """
        owner, place = self._owner(self._round), self._place_of(self.site)
        if owner in self._suspected:
            return self.coordinator
        if self._unvisited is None and not self._is_suspected(place + 1):
            return self._site_at(place + 1)
        trusted = self._still_unvisited() & ~self._places(self._suspected)
        ahead = trusted >> (place + 1) << (place + 1)
        return self._site_at((ahead & -ahead).bit_length() - 1) if ahead else owner

    def _still_unvisited(self) -> int:
        """The places left to visit: all after us if none was left out."""
        if self._unvisited is not None:
            return self._unvisited
        return (1 << len(self._order)) - (1 << (self._place_of(self.site) + 1))

    def _send_on(self, to: Site | None) -> list[Effect]:
        self._to, self._confirmed = to, False
        if to is None or self._sent is None:
            return [] if self._repetition is None else [CancelTimer(REPEAT)]
        return [Send(to, self._sent), *self._first_wait(REPEAT, self._for_receipt)]

    # Places in the cyclic order

    def _place_of(self, site: Site) -> int:
        """Counted from the member that began the round."""
        return (self._rank[site] - self._round) % len(self._order)

    def _site_at(self, place: int) -> Site:
        return self._order[(self._round + place) % len(self._order)]

    def _is_suspected(self, place: int) -> bool:
        return bool(self._suspected) and self._site_at(place) in self._suspected

    def _places(self, sites: set[Site]) -> int:
        return sum(1 << self._place_of(site) for site in sites)

    def _bitmap_bytes(self) -> int:
        return (len(self._order) + 7) // 8

    def _read_unvisited(self, sender: Site, pdu: Carriage) -> int | None:
        """The places that a train has left to visit; None if that makes no sense from this sender."""
        size = len(self._order)
        if not pdu.unvisited:
            # Only the member before us can have bypassed none.
            return 0 if (self._rank[sender] + 1 - self._rank[self.site]) % size == 0 else None
        unvisited = int.from_bytes(pdu.unvisited, "little")
        sound = len(pdu.unvisited) == self._bitmap_bytes() and unvisited >> size == 0 and not unvisited & 1
        return unvisited if sound else None

    # Greater rounds

    def _give_way(self, number: int) -> None:
        """Take part in this round; one of ours that it passes over must be made up for."""
        if self._collecting:
            self._again = True
        self._round, self._lap, self._collecting = number, -1, False

    def _news(self, pdu: Carriage) -> Pdu:
        """What a member lacks that sends a train of the past."""
        if self._finished is not None and self._finished.round >= pdu.round:
            return self._finished
        return Receipt(self._round, pdu.lap, view=self._view)

    # Loss

    def _receipt(self, sender: Site, pdu: Carriage) -> list[Effect]:
        if self._repetition is None:
            return []
        return [Send(sender, Receipt(pdu.round, pdu.lap, pdu.result, self._view))]

    def _on_receipt(self, sender: Site, pdu: Receipt) -> list[Effect]:
        if not self._is_round(pdu.round):
            return self._ignore()
        sent = self._sent
        if sent is None or sender != self._to:
            return []
        if pdu.round > self._round:
            return self._on_past(pdu.round)
        if (pdu.round, pdu.lap, pdu.result) != (sent.round, sent.lap, sent.result):
            return []
        self._confirmed = True
        self._note_receipt()
        if self.under_way:
            # The train has moved on. Should its result not reach us, we shall ask, but not soon.
            return self._wait_for_result()
        return [] if self._repetition is None else [CancelTimer(REPEAT)]

    def _on_past(self, number: int) -> list[Effect]:
        """The group has later rounds than we knew, say after a restart, and may wait for us."""
        if self.coordinator == self.site:
            self._round = number
            return self._begin()
        self._give_way(number)
        self._awaiting, self._to = False, None
        return [] if self._repetition is None else [CancelTimer(REPEAT)]

    def _on_timer(self, name: str) -> list[Effect]:
        if name != REPEAT or self._to is None or self._sent is None:
            return []
        if self._confirmed and not self.under_way:
            return []
        return [Send(self._to, self._sent), *self._next_wait(REPEAT, self._awaited)]

    @property
    def _for_receipt(self) -> RoundTrip | None:
        return None if self.trips is None else self.trips.receipt

    @property
    def _awaited(self) -> RoundTrip | None:
        return self._for_result if self._confirmed else self._for_receipt

    def _note_receipt(self) -> None:
        if self.trips is not None:
            self.trips.receipt.end_with(self._now, repeated=False)

    def _wait_for_result(self) -> list[Effect]:
        if self._repetition is None or self.trips is None:
            return []
        longest_ns = self._repetition.longest_ns
        return self._wait(REPEAT, self.trips.result.begin(self._now, self._repetition, longest_ns))

    # Crashes

    def _on_suspected(self, site: Site) -> list[Effect]:
        """The train goes another way if this one was to send it on, or to find its result."""
        if site == self._to or (self._awaiting and site == self._owner(self._round)):
            return self._reroute()
        return []

    def _on_restored(self, site: Site) -> list[Effect]:  # noqa: ARG002
        """Who was passed by wrongly, or has begun the round and is there after all, gets the train."""
        if not self._awaiting or self._next_stop() == self._to:
            return []  # a member that we left out is visited by our next lap
        return self._route()

    def _reroute(self) -> list[Effect]:
        if self._sent is None:
            return []
        return self._send_on(self._next_to_tell()) if self._sent.result else self._route()
