"""A network with bounded delays as a one-channel service: the order is that of reception timestamps.

Source: Konorski, section 3.2. A sender adds the bound ∆' to the group's clock and so gives its message a
stamp; everyone, the sender as well, holds the message until the group's clock has reached it. Messages leave
in the order of their stamps, of tags where those are equal.

Assumes: clocks that run at about one rate (their offsets are estimated, see `clocks`), and that few messages
take longer than ∆'. Nothing is assumed of how PDUs are lost, repeated or reordered.

Guarantees: every arc placed is true, whatever the network does, as stamps decide and not arrivals. Marks are
as sure as the detector that is chosen:
- `delays` is the paper's: contiguous unless since the last release a PDU came later than its lifetime, less a
  guard of an eighth, or we were late ourselves, or something is known to be lost. It is as quick as ∆' lets
  it, but it must trust silence: a lost message that nothing has told of yet, or a network that stands still,
  make it mark what is not contiguous.
- `evidence` marks only what every other member has vouched for: by a later message, or by saying which number
  its next message has and a stamp that it will exceed. A member says that in its reports, and in a PDU of its
  own when it has been silent while others sent. Neither loss nor delay can mislead it, unless a member has
  not been heard at all yet, or not for longer than we wait. It costs those PDUs, and latency until the
  slowest has spoken; what was released before then is marked afterwards.

The default is `evidence`. Simulated with 5 members, delays of 1 to 2 ms and messages of all of them: where a
hundredth of the PDUs is lost one mark in 170 of `delays` was false, where a twentieth is lost one in 40; of
500,000 marks of `evidence` none. Its marks came 5.0 ms after a message was sent, those of `delays` 2.7 ms.

Deviations: ∆' adapts to the delays that members see and is at any time the greatest that one of them needs. A
message whose lifetime is over is not lost for the order: its stamp still tells its place, and it is placed
among those released a while ago, unmarked. So is one that comes remulticast.

A stamp far in the future, further than twice the longest bound, is refused; so are messages beyond the
queue's limit. Then others' reports have to tell where they stand.
"""

from bisect import bisect_right, insort
from heapq import heappop, heappush
from typing import ClassVar, Final, TypeAlias

from antiphon.core.effects import CancelTimer, Multicast, SetTimer
from antiphon.core.errors import UsageError
from antiphon.core.fields import Incarnation, NumberOrNone
from antiphon.core.ids import Site
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.dpg.pdus import ORIGIN, Arc, Farewell, Message, Remulticast, Report, Tag, Time
from antiphon.protocols.dpg.services.base import PREFIX, Channel
from antiphon.protocols.dpg.services.clocks import (
    BOUNDS_NS,
    DelayBound,
    GroupClock,
    Note,
    bound_of,
    given_at,
    read_note,
    stamp_above,
    stamp_at,
)
from antiphon.protocols.dpg.services.detectors import DelayDetector
from antiphon.protocols.dpg.services.streams import UNNUMBERED, Streams

DETECTORS: Final = ("delays", "evidence")
RELEASE: Final = PREFIX + "release"
VOUCH: Final = PREFIX + "vouch"
GREET: Final = PREFIX + "greet"
RECENT: Final = 1024
"""Released messages among which a late one finds its place. Raising it costs memory."""
FUTURE: Final = 2
"""Stamps further ahead than so many longest bounds are refused."""
PATIENCE: Final = 4
"""So many bounds pass at least before a silent member is not waited for."""
ALONE_NS: Final = SECOND_NS
"""Who hears nobody for so long is alone."""
CHANCES: Final = 6
"""So many vouches have to be missing as well. Raising it costs a longer pause, lowering it risks order."""
BEGINNING_NS: Final[Nanoseconds] = 50 * MILLISECOND_NS
"""Who has not been heard for so long after a group began is not there. Raising it costs latency then."""
GREETINGS: Final = 4
"""How often a member says in that time that it is there, lest it be taken for absent when it is only idle."""
GUARD: Final = 8
"""A PDU that has used up all but this part of its lifetime is a warning."""

Place: TypeAlias = tuple[int, Tag]
"""Where a message stands: its stamp, then its tag."""


class Vouch(Pdu, frozen=True, gc=False):
    """A silent member's next message has this number (-1: it has sent none) and a greater stamp than this."""

    code: ClassVar[int] = 91
    incarnation: Incarnation
    number: NumberOrNone
    floor: Time


class BoundedDelayService:
    """Implements `services.base.Service`."""

    reports_ordered = False
    hears_itself = True
    pdus: tuple[type[Pdu], ...] = (Vouch,)

    def __init__(
        self,
        bound_ns: Nanoseconds = 50 * MILLISECOND_NS,
        *,
        adaptive: bool = True,
        least_ns: Nanoseconds = MILLISECOND_NS,
        most_ns: Nanoseconds = SECOND_NS,
        detector: str = "evidence",
        vouch_ns: Nanoseconds = 2 * MILLISECOND_NS,
        patience_ns: Nanoseconds = 60 * MILLISECOND_NS,
        queue_limit: int = 4096,
    ) -> None:
        """`bound_ns` is ∆', or what it begins with; it adapts within `least_ns` and `most_ns`.

        `vouch_ns` is how long a silent member waits for something to say before it vouches. Raising it costs
        latency, lowering it PDUs. After `patience_ns`, and four bounds, without anything to mark, those who
        were not heard in that time are no longer waited for. Raising it costs a pause when a member vanishes,
        lowering it risks order when one is cut off.
        """
        if detector not in DETECTORS:
            raise UsageError(
                f"A network with bounded delays has no detector '{detector}'.",
                hint=f"Choose {' or '.join(DETECTORS)}.",
            )
        if (
            not 0 < least_ns <= bound_ns <= most_ns <= BOUNDS_NS[-1]
            or min(queue_limit, vouch_ns, patience_ns) < 1
        ):
            raise UsageError(
                "The bound lies between the least and the most, and all of them are positive.",
                hint=f"The most can be {BOUNDS_NS[-1] // SECOND_NS} s.",
            )
        self._by_evidence: Final = detector == "evidence"
        self._most_ns: Final = most_ns
        self._vouch_ns: Final = vouch_ns
        self._patience_ns: Final = patience_ns
        self._queue_limit: Final = queue_limit
        self._clock: Final = GroupClock(most_ns, bound_ns)
        self._bound: Final = DelayBound(bound_ns, least_ns, most_ns, adaptive=adaptive)
        self._delays: Final = DelayDetector()
        self._streams: Final = Streams(patience_ns // CHANCES)
        self._channel: Channel
        self._incarnation: int | None = None
        self._next_number = UNNUMBERED
        self._vouches = 0
        self._late_pdus = 0
        self._late_messages = 0
        self._refused = 0
        self._contiguities = 0
        self._false_contiguities = 0
        self._floor = 0
        self._trusted_ns: Nanoseconds = 0
        self._forget()

    def _forget(self, *, whole: bool = False) -> None:
        """Nothing is known of the channel, or that nothing has been on it yet."""
        self._queue: list[Place] = []
        self._queued: set[Tag] = set()
        self._recent: list[Place] = [(0, ORIGIN)] if whole else []
        self._contiguous: set[Tag] = set()
        """Of the recent ones, those marked as following the one before."""
        self._decided: Place = (0, ORIGIN)
        """Up to here it is settled what is contiguous, by evidence."""
        self._armed_ns: Nanoseconds | None = None
        self._waiting_ns: Nanoseconds = 0
        self._waiting_heard_ns: Nanoseconds = 0
        self._vouching = False
        self._heard = 0
        """The greatest stamp of others' messages."""
        self._delays.begin(whole=whole)
        self._streams.begin(whole=whole)

    def attach(self, channel: Channel) -> None:
        self._channel = channel

    # Being there

    def start(self, now: Nanoseconds, incarnation: int) -> None:
        # Who begins together with the whole group has missed nothing before the first message.
        whole = incarnation == 0 and self._incarnation is None
        self._forget(whole=whole)
        self._trusted_ns = now + BEGINNING_NS if whole else now
        if whole and self._by_evidence:
            self._channel.emit(SetTimer(GREET, BEGINNING_NS // (GREETINGS + 1)))
        self._clock.begin(now, self._channel.site, incarnation)
        if incarnation != self._incarnation:
            self._incarnation = incarnation
            self._next_number = UNNUMBERED

    def take_part(self, now: Nanoseconds) -> None:
        self._clock.settle(now)

    def depart(self, now: Nanoseconds) -> None:
        """What waits here has its place by its stamp: our last report shall tell of it, without marks."""
        for place in sorted(self._queue):
            self._delays.late()
            self._release(now, place, 0)
        self._forget()
        self._channel.emit(CancelTimer(RELEASE))
        self._channel.emit(CancelTimer(VOUCH))
        self._channel.emit(CancelTimer(GREET))

    # Own messages

    def stamp(self, now: Nanoseconds) -> int:
        """Stamps rise, even if the bound or the clock does not, and exceed what the last note promised."""
        wanted = stamp_at(self._clock.read(now), self._bound.bound_ns)
        self._floor = stamp_above(self._floor, wanted)
        return self._floor

    def hand_over(self, now: Nanoseconds, message: Message) -> None:
        self._next_number = message.number + len(message.bodies)
        self._channel.emit(Multicast(message))
        self._enter(now, (message.stamp, message.tag))

    # What comes

    def receive(
        self, now: Nanoseconds, sender: Site, message: Message, *, after_loss: bool, fresh: bool
    ) -> None:
        self._notice(now, after_loss)
        if not fresh or not self._makes_sense(now, message.stamp):
            return
        self._watch(sender, self._clock.read(now) - given_at(message.stamp), bound_of(message.stamp))
        self._take(now, sender, message)
        self._heard = max(self._heard, message.stamp)
        if self._by_evidence and not self._vouching and self._heard > self._floor:
            self._vouching = True
            self._channel.emit(SetTimer(VOUCH, self._vouch_ns))

    def receive_report(self, now: Nanoseconds, sender: Site, report: Report, *, after_loss: bool) -> None:
        self._notice(now, after_loss)
        note = read_note(report.service)
        if note is None:
            self._refused += 1
            return
        if report.listening:
            note = note._replace(settled=False)
        self._hear_clock(now, sender, report.incarnation, note)
        self._bound.choose(self._clock.lately(now))
        self._watch(sender, self._clock.read(now) - note.group_clock_ns, self._bound.bound_ns)
        self._hear_vouch(now, sender, Vouch(report.incarnation, note.number, note.floor))
        self._arm(now)

    def receive_other(self, now: Nanoseconds, sender: Site, pdu: Pdu, *, after_loss: bool) -> None:
        """What comes remulticast has its place as well, if it was missed here and is not too old."""
        self._notice(now, after_loss)
        if isinstance(pdu, Vouch):
            self._hear_vouch(now, sender, pdu)
        elif isinstance(pdu, Farewell):
            note = read_note(pdu.service)
            if note is not None:  # it tells whether anything of it is still missing here
                self._hear_vouch(now, sender, Vouch(pdu.incarnation, note.number, note.floor))
            self._streams.leave(sender)
        elif isinstance(pdu, Remulticast) and pdu.sender != self._channel.site:
            place = (pdu.stamp, pdu.tag)
            is_old = not self._recent or place < self._recent[0]
            if not is_old and self._channel.is_ahead(pdu.tag) and self._makes_sense(now, pdu.stamp):
                self._take(now, pdu.sender, pdu)

    def _hear_clock(self, now: Nanoseconds, sender: Site, incarnation: int, note: Note) -> None:
        steps = self._clock.steps
        move_ns = self._clock.hear(now, sender, incarnation, note)
        if self._clock.steps > steps:
            self._bound.begin()
        if move_ns < -self._most_ns:
            # No stamp that was given so far is good, our own promises included.
            self._floor = 0
            self._forget()

    def _hear_vouch(self, now: Nanoseconds, sender: Site, vouch: Vouch) -> None:
        if self._makes_sense(now, vouch.floor):
            self._streams.tell(now, sender, vouch.incarnation, vouch.number, vouch.floor)
            if self._by_evidence:
                self._confirm(now)

    def _notice(self, now: Nanoseconds, after_loss: bool) -> None:
        """What was lost had any stamp that can have been given by now."""
        if after_loss:
            longest_ns = self._bound.bound_ns + self._bound.bound_ns // GUARD
            self._delays.lost(stamp_at(self._clock.read(now), longest_ns))

    def _makes_sense(self, now: Nanoseconds, stamp: int) -> bool:
        if 0 < stamp <= self._clock.read(now) + FUTURE * self._most_ns:
            return True
        self._refused += 1
        return False

    def _watch(self, sender: Site, delay_ns: Nanoseconds, bound_ns: Nanoseconds) -> None:
        """A PDU of this sender took so long where it was allowed so much."""
        # Beyond the longest bound it is not the network that is slow: the clocks have not met yet.
        if self._clock.settled and abs(delay_ns) <= self._most_ns:
            self._bound.observe(sender, delay_ns)
        if delay_ns > bound_ns - bound_ns // GUARD:
            self._late_pdus += 1
            self._delays.late()

    def _take(self, now: Nanoseconds, sender: Site, message: Message | Remulticast) -> None:
        place = (message.stamp, message.tag)
        is_late = bool(self._recent) and place <= self._recent[-1]
        if not is_late and len(self._queue) >= self._queue_limit:
            # As if it had been lost: what its sender says next will tell that it is missing.
            self._refused += 1
            self._delays.lost(message.stamp)
            return
        count = message.bodies.messages
        if isinstance(message, Remulticast):
            self._streams.take_again(sender, message.incarnation, message.number, count)
        else:
            self._streams.take(
                now, sender, message.incarnation, message.number, count, message.stamp, message.previous
            )
        if is_late:
            self._place_late(now, place)
        else:
            self._enter(now, place)

    # The queue

    def _enter(self, now: Nanoseconds, place: Place) -> None:
        if place[1] not in self._queued:
            self._queued.add(place[1])
            heappush(self._queue, place)
            self._arm(now)

    def _arm(self, now: Nanoseconds) -> None:
        """One timer for the first in the queue, set again only if that has changed."""
        if not self._queue:
            return
        due_ns = self._queue[0][0] - self._clock.adjustment_ns
        if due_ns != self._armed_ns:
            self._armed_ns = due_ns
            self._channel.emit(SetTimer(RELEASE, max(1, due_ns - now)))

    def fire(self, now: Nanoseconds, name: str) -> None:
        if name == RELEASE:
            self._release_due(now)
        elif name == GREET:
            self._greet(now)
        elif self._vouching:
            self._vouching = False
            self._vouch(now)

    def _release_due(self, now: Nanoseconds) -> None:
        """Only when the time has come: what arrives together is in the queue before any of it leaves."""
        self._armed_ns = None
        clock_ns = self._clock.read(now)
        if self._queue and clock_ns - self._queue[0][0] > self._bound.bound_ns // 2:
            # We were not there in time, so there may be PDUs that we have not read yet.
            self._delays.late()
        reached = self._reached(now) if self._by_evidence else 0
        while self._queue and self._queue[0][0] <= clock_ns:
            place = heappop(self._queue)
            self._queued.discard(place[1])
            self._release(now, place, reached)
        if self._by_evidence:
            self._confirm(now)
        self._arm(now)

    def _release(self, now: Nanoseconds, place: Place, reached: int) -> None:
        stamp, tag = place
        arcs: tuple[Arc, ...] = ()
        timely = self._delays.released(stamp)
        if self._recent:
            before = self._recent[-1]
            if before == self._decided:
                self._wait(now)
            vouched = stamp <= reached and before == self._decided
            contiguous = (vouched if self._by_evidence else timely) and self._streams.is_whole(
                before[0], stamp
            )
            arcs = ((before[1], tag, contiguous),)
            if contiguous:
                self._mark(place)
        self._recent.append(place)
        if len(self._recent) > 2 * RECENT:
            self._contiguous.difference_update(old for _, old in self._recent[:RECENT])
            del self._recent[:RECENT]
        self._channel.placed(now, tag, arcs)

    def _mark(self, place: Place) -> None:
        self._contiguous.add(place[1])
        self._contiguities += 1
        self._decided = place

    def _place_late(self, now: Nanoseconds, place: Place) -> None:
        """A message's lifetime is over and later ones have left: it goes between those that it belongs to."""
        index = bisect_right(self._recent, place)
        if index and self._recent[index - 1] == place:
            return
        tag, after = place[1], self._recent[index][1]
        arcs: list[Arc] = [(tag, after, False)]
        if index:
            arcs.append((self._recent[index - 1][1], tag, False))
        if after in self._contiguous:
            self._contiguous.discard(after)
            self._false_contiguities += 1
        self._late_messages += 1
        insort(self._recent, place)
        self._channel.placed(now, tag, arcs)

    # Evidence

    def _greet(self, now: Nanoseconds) -> None:
        """Be known to all before it counts who is not."""
        pause_ns = BEGINNING_NS // (GREETINGS + 1)
        if now + pause_ns <= self._trusted_ns:
            self._say_vouch(now)
            self._channel.emit(SetTimer(GREET, pause_ns))

    def _vouch(self, now: Nanoseconds) -> None:
        """Others wait for our word, unless we have said something since."""
        if self._heard > self._floor:
            self._say_vouch(now)

    def _say_vouch(self, now: Nanoseconds) -> None:
        self._vouches += 1
        self._channel.emit(Multicast(Vouch(self._incarnation or 0, self._next_number, self.stamp(now))))

    def _confirm(self, now: Nanoseconds) -> None:
        """Mark what was released before and is vouched for by now."""
        index = bisect_right(self._recent, self._decided)
        if index == len(self._recent):
            return
        if self._is_hopeless(now):
            self._streams.silence(max(self._waiting_ns, now - ALONE_NS // 2))
            self._wait(now)  # else nobody who falls silent only later would ever be left out
        reached = self._reached(now)
        while index < len(self._recent) and self._recent[index][0] <= reached:
            place = self._decided = self._recent[index]
            self._wait(now)
            if index and self._streams.is_whole(self._recent[index - 1][0], place[0]):
                self._mark(place)
                self._channel.placed(now, place[1], ((self._recent[index - 1][1], place[1], True),))
            index += 1

    def _reached(self, now: Nanoseconds) -> int:
        """What all have vouched for; nothing as long as it is not known who all are."""
        return self._streams.reached() if now >= self._trusted_ns else 0

    def _is_hopeless(self, now: Nanoseconds) -> bool:
        """Whether those who were silent had time enough to vouch for what we wait with.

        Only time in which others were heard counts, as otherwise it is rather we who are cut off; or, after
        long, alone.
        """
        waited_ns = self._streams.heard_for_ns - self._waiting_heard_ns
        patience_ns = max(self._patience_ns, PATIENCE * self._bound.bound_ns)
        return waited_ns > patience_ns or now - self._waiting_ns > ALONE_NS

    def _wait(self, now: Nanoseconds) -> None:
        """Evidence has brought us further, or something begins to wait for it."""
        self._waiting_ns = now
        self._waiting_heard_ns = self._streams.heard_for_ns

    # What others are told, and what users see

    def vanished(self, now: Nanoseconds, site: Site) -> None:
        """Neither its clock nor its delays count any more, and nobody waits for its word."""
        self._clock.forget(site)
        self._bound.forget(site)
        self._streams.close(site, self._clock.read(now))

    def located(self, now: Nanoseconds, tag: Tag) -> None:
        """Its stamp has told that already."""

    def note(self, now: Nanoseconds) -> bytes:
        # One that has only vouched is in nobody's company, and so never vanishes from it.
        self._streams.expire(now - ALONE_NS, self._clock.read(now))
        self._bound.choose(self._clock.lately(now))
        told = Note(
            now, self._clock.adjustment_ns, self._bound.demand_ns, self._next_number, self.stamp(now),
            self._clock.settled, self._clock.differences(now),
        )  # fmt: skip
        return told.pack()

    def figures(self) -> dict[str, int]:
        return {
            "bound_ns": self._bound.bound_ns,
            "clock_adjustment_ns": self._clock.adjustment_ns,
            "clock_steps": self._clock.steps,
            "waiting_messages": len(self._queue),
            "vouches": self._vouches,
            "late_pdus": self._late_pdus,
            "late_messages": self._late_messages,
            "refused_stamps": self._refused,
            "gaps": self._streams.opened,
            "contiguities": self._contiguities,
            "false_contiguities": self._false_contiguities,
        }
