"""A network with bounded delays as a one-channel service: the order is that of reception timestamps.

Source: Konorski, section 3.2. A sender stamps a message with the group's clock plus the bound ∆'. All
members, the sender included, hold the message until the group's clock reaches the stamp. Messages leave in
the order of their stamps, then of their tags.

Assumes: clocks that run at about the same rate (their offsets are estimated, see `clocks`), and that few
messages take longer than ∆'. PDUs may be lost, repeated or reordered in any way.

Guarantees: every placed arc is true, whatever the network does, as stamps decide and not arrivals. Marks are
as sure as the chosen detector:
- `delays` is the paper's: contiguous unless since the last release a PDU came later than its lifetime, less a
  guard of an eighth, or this member was late itself, or something is known to be lost. It is as quick as ∆'
  allows, but it must trust silence: a lost message that is not noticed yet, or a network that stands still,
  makes it mark what is not contiguous.
- `evidence` marks only what every other member has vouched for: by a later message, or by telling the number
  of its next message and a stamp that it will exceed. A member vouches in its reports, and in a PDU of its
  own when it has been silent while others sent. Neither loss nor delay can mislead it, unless a member was
  not heard at all yet, or not for longer than the group waits. It costs those PDUs, and latency until the
  slowest member has vouched; what was released before then is marked afterwards.

The default is `evidence`. Simulated with 5 members, delays of 1 to 2 ms and messages of all of them: where a
hundredth of the PDUs is lost one mark in 170 of `delays` was false, where a twentieth is lost one in 40; of
500,000 marks of `evidence` none. Its marks came 5.0 ms after a message was sent, those of `delays` 2.7 ms.

Deviations: ∆' adapts to the delays that members see, and is the greatest that any of them needs. A message
whose lifetime is over still has its place by its stamp: it is placed, unmarked, among those released before.
So is a retransmitted message.

A stamp further in the future than twice the longest bound is refused; so are messages beyond the queue's
limit. Their places then come from others' reports.
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
from antiphon.protocols.dpg.services.base import PREFIX, MemberView, Placement, Placements
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
"""Released messages among which a late message finds its place. Raising it costs memory."""
FUTURE: Final = 2
"""Stamps further ahead than this multiple of the longest bound are refused. Raising it helps a liar."""
PATIENCE: Final = 4
"""Bounds that pass at least before the group stops waiting for a silent member. Raising it costs a pause."""
ALONE_NS: Final = SECOND_NS
"""A member that hears no other for this long is alone. Raising it costs a longer pause then."""
CHANCES: Final = 6
"""Vouches that have to be missing as well. Raising it costs a longer pause, lowering it risks order."""
BEGINNING_NS: Final[Nanoseconds] = 50 * MILLISECOND_NS
"""A member not heard for this long after a group began is absent. Raising it costs latency then."""
GREETINGS: Final = 4
"""Vouches of an idle member in that time, so that it counts as present. Raising it costs PDUs."""
GUARD: Final = 8
"""A PDU that arrives in the last part of its lifetime, one in this many, counts as late."""

Place: TypeAlias = tuple[int, Tag]
"""A message's place: its stamp, then its tag."""


class Vouch(Pdu, frozen=True, gc=False):
    """The sender's next message has this number (-1: it has sent none) and a greater stamp than `floor`."""

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
        """`bound_ns` is ∆', or its first value; it adapts within `least_ns` and `most_ns`.

        `vouch_ns` is how long a silent member waits for something to say before it vouches. Raising it costs
        latency, lowering it PDUs. After `patience_ns`, and four bounds, without anything to mark, the service
        stops waiting for members that were not heard in that time. Raising it costs a pause when a member
        vanishes, lowering it risks order when a member is cut off.
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
        self._member: MemberView
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
        self._placed: list[Placement] = []
        """Placements that the member has not got yet."""
        self._forget()

    def _forget(self, *, whole: bool = False) -> None:
        """Nothing is known of the channel; `whole` if nothing was sent on it yet."""
        self._queue: list[Place] = []
        self._queued: set[Tag] = set()
        self._recent: list[Place] = [(0, ORIGIN)] if whole else []
        self._contiguous: set[Tag] = set()
        """Recent messages that are marked as following the one before."""
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

    def attach(self, member: MemberView) -> None:
        self._member = member

    # Being there

    def start(self, now: Nanoseconds, incarnation: int) -> None:
        # A member that begins together with the group has missed nothing before the first message.
        whole = incarnation == 0 and self._incarnation is None
        self._forget(whole=whole)
        self._trusted_ns = now + BEGINNING_NS if whole else now
        if whole and self._by_evidence:
            self._member.emit(SetTimer(GREET, BEGINNING_NS // (GREETINGS + 1)))
        self._clock.begin(now, self._member.site, incarnation)
        if incarnation != self._incarnation:
            self._incarnation = incarnation
            self._next_number = UNNUMBERED

    def take_part(self, now: Nanoseconds) -> None:  # noqa: ARG002
        self._clock.settle()

    def depart(self, now: Nanoseconds) -> Placements:
        """Place what waits by its stamp, without marks, so that the last report carries it."""
        for place in sorted(self._queue):
            self._delays.late()
            self._release(now, place, 0)
        self._forget()
        self._member.emit(CancelTimer(RELEASE))
        self._member.emit(CancelTimer(VOUCH))
        self._member.emit(CancelTimer(GREET))
        return self._take_placed()

    # Own messages

    def stamp(self, now: Nanoseconds) -> int:
        """Stamps rise, even if the bound or the clock does not, and exceed what the last note vouched for."""
        wanted = stamp_at(self._clock.read(now), self._bound.bound_ns)
        self._floor = stamp_above(self._floor, wanted)
        return self._floor

    def hand_over(self, now: Nanoseconds, message: Message) -> None:
        self._next_number = message.number + len(message.bodies)
        self._member.emit(Multicast(message))
        self._enter(now, (message.stamp, message.tag))

    # What comes

    def on_message(
        self, now: Nanoseconds, sender: Site, message: Message, *, after_loss: bool, fresh: bool
    ) -> Placements:
        self._notice(now, after_loss)
        if not fresh or not self._makes_sense(now, message.stamp):
            return ()
        self._watch(sender, self._clock.read(now) - given_at(message.stamp), bound_of(message.stamp))
        self._take(now, sender, message)
        self._heard = max(self._heard, message.stamp)
        if self._by_evidence and not self._vouching and self._heard > self._floor:
            self._vouching = True
            self._member.emit(SetTimer(VOUCH, self._vouch_ns))
        return self._take_placed()

    def on_report(self, now: Nanoseconds, sender: Site, report: Report, *, after_loss: bool) -> Placements:
        self._notice(now, after_loss)
        note = read_note(report.service)
        if note is None:
            self._refused += 1
            return ()
        if report.listening:
            note = note._replace(settled=False)
        self._on_clock(now, sender, report.incarnation, note)
        self._bound.choose(self._clock.lately(now))
        self._watch(sender, self._clock.read(now) - note.group_clock_ns, self._bound.bound_ns)
        self._on_vouch(now, sender, Vouch(report.incarnation, note.number, note.floor))
        self._arm(now)
        return self._take_placed()

    def on_other_pdu(self, now: Nanoseconds, sender: Site, pdu: Pdu, *, after_loss: bool) -> Placements:
        """A retransmitted message has its place as well, if it was missed here and is not too old."""
        self._notice(now, after_loss)
        if isinstance(pdu, Vouch):
            self._on_vouch(now, sender, pdu)
        elif isinstance(pdu, Farewell):
            note = read_note(pdu.service)
            if note is not None:  # it shows whether anything of the sender is still missing here
                self._on_vouch(now, sender, Vouch(pdu.incarnation, note.number, note.floor))
            self._streams.leave(sender)
        elif isinstance(pdu, Remulticast) and pdu.sender != self._member.site:
            place = (pdu.stamp, pdu.tag)
            is_old = not self._recent or place < self._recent[0]
            if not is_old and self._member.is_ahead(pdu.tag) and self._makes_sense(now, pdu.stamp):
                self._take(now, pdu.sender, pdu)
        return self._take_placed()

    def _take_placed(self) -> Placements:
        placed = self._placed
        if placed:
            self._placed = []
        return placed

    def _on_clock(self, now: Nanoseconds, sender: Site, incarnation: int, note: Note) -> None:
        steps = self._clock.steps
        move_ns = self._clock.hear(now, sender, incarnation, note)
        if self._clock.steps > steps:
            self._bound.begin()
        if move_ns < -self._most_ns:
            # No stamp that was given so far is valid, own vouches included.
            self._floor = 0
            self._forget()

    def _on_vouch(self, now: Nanoseconds, sender: Site, vouch: Vouch) -> None:
        if self._makes_sense(now, vouch.floor):
            self._streams.tell(now, sender, vouch.incarnation, vouch.number, vouch.floor)
            if self._by_evidence:
                self._confirm(now)

    def _notice(self, now: Nanoseconds, after_loss: bool) -> None:
        """A lost message may have any stamp that can have been given by now."""
        if after_loss:
            longest_ns = self._bound.bound_ns + self._bound.bound_ns // GUARD
            self._delays.lost(stamp_at(self._clock.read(now), longest_ns))

    def _makes_sense(self, now: Nanoseconds, stamp: int) -> bool:
        if 0 < stamp <= self._clock.read(now) + FUTURE * self._most_ns:
            return True
        self._refused += 1
        return False

    def _watch(self, sender: Site, delay_ns: Nanoseconds, bound_ns: Nanoseconds) -> None:
        """A PDU of this sender took `delay_ns` where `bound_ns` was allowed."""
        # A delay beyond the longest bound is not the network's: the clocks have not met yet.
        if self._clock.settled and abs(delay_ns) <= self._most_ns and self._clock.has_say(sender):
            self._bound.observe(sender, delay_ns)
        if delay_ns > bound_ns - bound_ns // GUARD:
            self._late_pdus += 1
            self._delays.late()

    def _take(self, now: Nanoseconds, sender: Site, message: Message | Remulticast) -> None:
        place = (message.stamp, message.tag)
        is_late = bool(self._recent) and place <= self._recent[-1]
        if not is_late and len(self._queue) >= self._queue_limit:
            # As if it had been lost: its sender's next PDU will show that it is missing.
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
            self._place_late(place)
        else:
            self._enter(now, place)

    # The queue

    def _enter(self, now: Nanoseconds, place: Place) -> None:
        if place[1] not in self._queued:
            self._queued.add(place[1])
            heappush(self._queue, place)
            self._arm(now)

    def _arm(self, now: Nanoseconds) -> None:
        """One timer for the head of the queue, set again only if the head has changed."""
        if not self._queue:
            return
        due_ns = self._queue[0][0] - self._clock.adjustment_ns
        if due_ns != self._armed_ns:
            self._armed_ns = due_ns
            self._member.emit(SetTimer(RELEASE, max(1, due_ns - now)))

    def on_timer(self, now: Nanoseconds, name: str) -> Placements:
        if name == RELEASE:
            self._release_due(now)
        elif name == GREET:
            self._greet(now)
        elif self._vouching:
            self._vouching = False
            self._vouch(now)
        return self._take_placed()

    def _release_due(self, now: Nanoseconds) -> None:
        """Release what is due. What arrives together is in the queue before any of it leaves."""
        self._armed_ns = None
        clock_ns = self._clock.read(now)
        if self._queue and clock_ns - self._queue[0][0] > self._bound.bound_ns // 2:
            # This process was late, so there may be PDUs that it has not read yet.
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
            if self._member.is_behind(tag, before[1]):
                return  # the order has it elsewhere: the next message is contiguous across it
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
        self._placed.append(Placement(tag, arcs))

    def _mark(self, place: Place) -> None:
        self._contiguous.add(place[1])
        self._contiguities += 1
        self._decided = place

    def _place_late(self, place: Place) -> None:
        """Place a message whose lifetime is over among those that have left."""
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
        self._placed.append(Placement(tag, arcs))

    # Evidence

    def _greet(self, now: Nanoseconds) -> None:
        """Vouch at the beginning, so that all members know this one."""
        pause_ns = BEGINNING_NS // (GREETINGS + 1)
        if now + pause_ns <= self._trusted_ns:
            self._say_vouch(now)
            self._member.emit(SetTimer(GREET, pause_ns))

    def _vouch(self, now: Nanoseconds) -> None:
        """Vouch, unless a later stamp was told already."""
        if self._heard > self._floor:
            self._say_vouch(now)

    def _say_vouch(self, now: Nanoseconds) -> None:
        self._vouches += 1
        self._member.emit(Multicast(Vouch(self._incarnation or 0, self._next_number, self.stamp(now))))

    def _confirm(self, now: Nanoseconds) -> None:
        """Mark released messages that all have vouched for by now."""
        index = bisect_right(self._recent, self._decided)
        if index == len(self._recent):
            return
        if self._is_hopeless(now):
            self._streams.silence(max(self._waiting_ns, now - ALONE_NS // 2))
            self._wait(now)  # else a member that falls silent later would be awaited for ever
        reached = self._reached(now)
        while index < len(self._recent) and self._recent[index][0] <= reached:
            place = self._decided = self._recent[index]
            self._wait(now)
            if index and self._streams.is_whole(self._recent[index - 1][0], place[0]):
                self._mark(place)
                self._placed.append(Placement(place[1], ((self._recent[index - 1][1], place[1], True),)))
            index += 1

    def _reached(self, now: Nanoseconds) -> int:
        """The stamp that all have vouched for; 0 while it is not known who is present."""
        return self._streams.reached() if now >= self._trusted_ns else 0

    def _is_hopeless(self, now: Nanoseconds) -> bool:
        """Whether silent members had enough time to vouch.

        Only time in which others were heard counts: else this member may be cut off or, after long, alone.
        """
        waited_ns = self._streams.heard_for_ns - self._waiting_heard_ns
        patience_ns = max(self._patience_ns, PATIENCE * self._bound.bound_ns)
        return waited_ns > patience_ns or now - self._waiting_ns > ALONE_NS

    def _wait(self, now: Nanoseconds) -> None:
        """Evidence has made progress, or a message begins to wait for it."""
        self._waiting_ns = now
        self._waiting_heard_ns = self._streams.heard_for_ns

    # Notes and figures

    def on_vanished(self, now: Nanoseconds, site: Site) -> None:
        """Its clock and delays no longer count, and no vouch of it is awaited."""
        self._clock.forget(site)
        self._bound.forget(site)
        self._streams.close(site, self._clock.read(now))

    def on_located(self, now: Nanoseconds, tag: Tag) -> None:
        """No-op: the stamp fixes the position."""

    def note(self, now: Nanoseconds) -> bytes:
        # A site that has only vouched is no peer, and so never vanishes.
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
