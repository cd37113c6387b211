"""A clock that a group agrees on, and how long its messages take by that clock.

Source: Konorski, section 3.2, which assumes that local clocks run synchronously; how they come to is ours.

A member's group clock is its own clock plus an adjustment. The note in its reports carries both, and for each
peer the least difference between its own clock at reception and the peer's clock at sending: the least delay
plus the clocks' offset. Half of the difference between the two directions is the offset, if the least delays
are equal both ways; otherwise it errs by half of what they differ. Members that take part move slowly towards
their mean; a listening member follows them at once. Of n members the (n-1)/3 furthest ahead and the (n-1)/3
furthest behind do not count: so that many liars cannot take the clock beyond what honest members show. They
can make all clocks together go a thousandth faster or slower. Up to three members must trust one another.

Groups that meet with clocks further apart than the longest bound have no common order anyway. After a while,
in which all members have heard each other, those behind step forward. But where those ahead are so few that
they do not count, they step back.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.ids import Site
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.protocols.dpg.pdus import LARGEST

MOST_PEERS: Final = 256
"""Members whose clocks are watched; of more, those heard for long, and then those heard last."""
MEMORY_NS: Final = 10 * SECOND_NS
"""How long a note counts. Raising it keeps the notes of members that are gone."""
CLOCK_SAMPLES: Final = 8
"""Receptions of which the least difference is taken. Raising it costs accuracy when clocks drift."""
SLOWNESS: Final = 1000
"""A member moves its clock by one part in this many at most. Raising it costs time to agree."""
LONGEST_MOVE_NS: Final = MILLISECOND_NS
PATIENCE_NS: Final = SECOND_NS
"""How long a member stays far from the others before it steps. Raising it costs time when groups meet."""
DELAY_SAMPLES: Final = 256
FEWEST_DELAYS: Final = 16
"""Fewer delays say too little. Raising it costs time to adapt."""
FEWEST_OF_ONE: Final = 4
"""Fewer notes of a member do not count: a crowd of names may send little each."""
LONG_NS: Final = 300 * MILLISECOND_NS
"""A member heard for less has no say where clocks are far apart, nor in how long messages take.

Raising it costs time to meet.
"""
LATEST_OF_ONE: Final = 8
"""Latest delays of a sender that count as usual for it. Raising it costs time after its clock stepped."""
MARGIN_NS: Final = 200_000
MOST_TIMES: Final = 8
"""A bound above the first bound, and above this multiple of the delays seen here, is not believed.

Raising it lets a liar make the group slower; lowering it makes messages late where one member is slow.
"""

CODE_BITS: Final = 10
CODE_MASK: Final = (1 << CODE_BITS) - 1
BOUNDS_NS: Final = tuple(round(1000 * 2 ** (code / 44)) for code in range(1 << CODE_BITS))
"""The bounds that a stamp can name: from a microsecond to ten seconds, each 1.6% above the one before."""

LATEST_NS: Final[Nanoseconds] = LARGEST // 4 * 3
"""Upper limit of a group's clock, with room to go on for decades. This is the year 2079."""

HEAD: Final = Struct("!qqqqqB")
DIFFERENCE: Final = Struct("!8sq")


# Stamps


def stamp_at(clock_ns: Nanoseconds, bound_ns: Nanoseconds) -> int:
    """A reception timestamp: the group's clock plus the bound.

    Its lowest bits name the bound, so that a receiver knows when the stamp was given.
    """
    code = min(bisect_left(BOUNDS_NS, bound_ns), CODE_MASK)
    return (clock_ns + BOUNDS_NS[code]) & ~CODE_MASK | code


def stamp_above(floor: int, stamp: int) -> int:
    """This stamp, or the first stamp above the floor that names the same bound."""
    if stamp > floor:
        return stamp
    return ((floor >> CODE_BITS) + 1) << CODE_BITS | stamp & CODE_MASK


def bound_of(stamp: int) -> Nanoseconds:
    return BOUNDS_NS[stamp & CODE_MASK]


def given_at(stamp: int) -> Nanoseconds:
    """What the group's clock showed when this stamp was given."""
    return (stamp & ~CODE_MASK) - BOUNDS_NS[stamp & CODE_MASK]


# Notes


class Note(NamedTuple):
    """A member's clock, the delays it sees, and its next message."""

    clock_ns: Nanoseconds
    """Its own clock, not adjusted."""
    adjustment_ns: Nanoseconds
    bound_ns: Nanoseconds
    """The bound that it needs."""
    number: int
    """Its next message has this number; -1 if it has sent none since it began."""
    floor: int
    """Its next message has a greater stamp than this."""
    settled: bool
    """Whether it takes part."""
    differences: bytes

    @property
    def group_clock_ns(self) -> Nanoseconds:
        return self.clock_ns + self.adjustment_ns

    def pack(self) -> bytes:
        return HEAD.pack(*self[:-1]) + self.differences

    def difference(self, identity: bytes) -> int | None:
        """Its difference for one member."""
        for other, difference in DIFFERENCE.iter_unpack(self.differences):
            if other == identity:
                return int(difference)
        return None


def read_note(data: bytes) -> Note | None:
    """A note, or None if it makes no sense."""
    table = len(data) - HEAD.size
    if table < 0 or table % DIFFERENCE.size or table > MOST_PEERS * DIFFERENCE.size:
        return None
    clock_ns, adjustment_ns, bound_ns, number, floor, settled = HEAD.unpack_from(data)
    group_clock_ns = clock_ns + adjustment_ns
    if not (0 <= group_clock_ns < LATEST_NS and 0 <= bound_ns < LARGEST and -1 <= number < NUMBER_LIMIT):
        return None
    return Note(clock_ns, adjustment_ns, bound_ns, number, floor, bool(settled), data[HEAD.size :])


def identity_of(site: Site, incarnation: int) -> bytes:
    """A member's key in the table of differences; a restarted member has another."""
    return blake2b(f"{incarnation}/{site}".encode(), digest_size=8).digest()


# The clock


class PeerClock:
    """Another member's clock."""

    __slots__ = ("_since_ns", "differences", "heard_ns", "identity", "incarnation", "note", "theirs")

    def __init__(self, site: Site, incarnation: int) -> None:
        self.incarnation: Final = incarnation
        self.identity: Final = identity_of(site, incarnation)
        self.differences: Final[deque[int]] = deque(maxlen=CLOCK_SAMPLES)
        """Our clock at reception less its clock at sending."""
        self.theirs: int | None = None
        """The least difference that it has seen the other way."""
        self.note: Note
        self.heard_ns: Nanoseconds = 0
        self._since_ns: Nanoseconds | None = None

    def is_usual(self) -> bool:
        """Whether it was heard often enough, and for long enough."""
        is_old = self._since_ns is not None and self.heard_ns - self._since_ns >= LONG_NS
        return is_old and len(self.differences) >= FEWEST_OF_ONE

    def hear(self, now: Nanoseconds, note: Note, mine: bytes) -> None:
        self._since_ns = now if self._since_ns is None else self._since_ns
        self.differences.append(now - note.clock_ns)
        self.theirs = note.difference(mine)
        self.note = note
        self.heard_ns = now

    def ahead_ns(self, adjustment_ns: Nanoseconds) -> Nanoseconds:
        """How far its group clock is ahead of ours, which has this adjustment."""
        least = min(self.differences)
        # Before it has heard this member, delays count as nothing.
        offset = least if self.theirs is None else (least - self.theirs) // 2
        return self.note.adjustment_ns - offset - adjustment_ns


class GroupClock:
    """One member's view of the clock that the group agrees on."""

    def __init__(self, most_ns: Nanoseconds, far_ns: Nanoseconds | None = None) -> None:
        """Clocks further apart than `most_ns` have not met yet; at `far_ns` from the others a clock steps."""
        self._far_ns: Final = most_ns if far_ns is None else far_ns
        self.adjustment_ns: Nanoseconds = 0
        self.settled = False
        self._is_confirmed = False
        """Whether this clock has been near the others' since it settled."""
        self.steps = 0
        self._most_ns: Final = most_ns
        self._peers: dict[Site, PeerClock] = {}
        self._identity = b""
        self._moved_ns: Nanoseconds = 0
        self._near_ns: Nanoseconds = 0
        """When this clock was last known to be near the others'."""

    def begin(self, now: Nanoseconds, site: Site, incarnation: int) -> None:
        """Listen, with the last adjustment as a first guess."""
        self.settled = self._is_confirmed = False
        self._peers.clear()
        self._identity = identity_of(site, incarnation)
        self._moved_ns = now
        self._near_ns = now

    def settle(self) -> None:
        """This is the group's clock from here on."""
        self.settled = True

    def read(self, now: Nanoseconds) -> Nanoseconds:
        return now + self.adjustment_ns

    def hear(self, now: Nanoseconds, site: Site, incarnation: int, note: Note) -> Nanoseconds:
        """Apply another member's note. Returns how far this clock has moved."""
        peer = self._peers.pop(site, None)
        if peer is None or peer.incarnation != incarnation:
            peer = PeerClock(site, incarnation)
        # Peers heard last stand last. The first that was hardly heard is forgotten: a crowd of names must not
        # displace the members.
        self._peers[site] = peer
        if len(self._peers) > MOST_PEERS:
            hardly_heard = (name for name, other in self._peers.items() if not other.is_usual())
            del self._peers[next(hardly_heard)]
        peer.hear(now, note, self._identity)
        return self._adjust(now)

    def has_say(self, site: Site) -> bool:
        """Whether a site was heard for long enough, or no site was."""
        peer = self._peers.get(site)
        if peer is not None and peer.is_usual():
            return True
        return not any(other.is_usual() for other in self._peers.values())

    def forget(self, site: Site) -> None:
        """A member that is gone no longer counts."""
        self._peers.pop(site, None)

    def lately(self, now: Nanoseconds) -> list[PeerClock]:
        return [peer for peer in self._peers.values() if now - peer.heard_ns < MEMORY_NS]

    def differences(self, now: Nanoseconds) -> bytes:
        """The table for our own note."""
        return b"".join(
            DIFFERENCE.pack(peer.identity, max(-LARGEST, min(LARGEST, min(peer.differences))))
            for peer in self.lately(now)
        )

    def _adjust(self, now: Nanoseconds) -> Nanoseconds:
        votes = self._votes(now)
        if not votes:
            self._near_ns = now
            return 0
        # A member that takes part is among the voters, a listener is not: a third of all may lie.
        move_ns = agreed(votes, self._far_ns, self._most_ns, (len(votes) - self.settled) // 3)
        is_far = abs(move_ns) > self._far_ns
        if not is_far:
            self._near_ns = now
            self._is_confirmed = self.settled
        elif self._is_confirmed and now - self._near_ns < PATIENCE_NS:
            return 0  # a member that was never near the others has heard the wrong clocks, and steps at once
        self.steps += is_far
        if self.settled and not is_far:
            limit_ns = min((now - self._moved_ns) // SLOWNESS, LONGEST_MOVE_NS)
            move_ns = max(-limit_ns, min(limit_ns, move_ns // 2))
        self._moved_ns = now
        self.adjustment_ns += move_ns
        return move_ns

    def _votes(self, now: Nanoseconds) -> list[Nanoseconds]:
        """How far the others are ahead of this clock, and a 0 for this member where it counts.

        If clocks are far apart, members that were hardly heard do not count: a crowd of names may send
        little each. Only a listening member has to take what there is.
        """
        lately = self.lately(now)
        votes = self._votes_of(lately)
        if votes and max(votes) - min(votes) > self._far_ns:
            usual = self._votes_of([peer for peer in lately if peer.is_usual()])
            return usual if usual or self.settled else votes
        return votes

    def _votes_of(self, lately: list[PeerClock]) -> list[Nanoseconds]:
        settled = [peer for peer in lately if peer.note.settled]
        if self.settled:
            votes = [peer.ahead_ns(self.adjustment_ns) for peer in settled if peer.theirs is not None]
            return [0, *votes] if votes else []
        votes = [peer.ahead_ns(self.adjustment_ns) for peer in settled or lately]
        return votes if settled or not lately else [0, *votes]


def agreed(
    votes: Iterable[Nanoseconds], far_ns: Nanoseconds, most_ns: Nanoseconds, liars: int
) -> Nanoseconds:
    """Where clocks meet that are ahead by these amounts, if up to `liars` of them lie.

    >>> agreed([0, 4, 8], 9, 10, 0), agreed([0, 100], 9, 10, 0), agreed([0, 4, 8, 9_999], 9, 10, 1)
    (4, 100, 6)
    >>> agreed([-7, 0, 1], 5, 10, 0)
    0
    """
    ordered = sorted(votes)
    kept = ordered[liars : len(ordered) - liars]
    spread_ns = kept[-1] - kept[0]
    if spread_ns > most_ns:
        return kept[-1]
    return kept[len(kept) // 2] if spread_ns > far_ns else sum(kept) // len(kept)


# The bound


class DelayBound:
    """∆', the upper bound of delays, as this member needs it and as the group uses it."""

    def __init__(
        self, bound_ns: Nanoseconds, least_ns: Nanoseconds, most_ns: Nanoseconds, *, adaptive: bool
    ) -> None:
        self.demand_ns = bound_ns
        """What this member needs."""
        self.bound_ns = bound_ns
        """What the group uses: the greatest that a member needs."""
        self._first_ns: Final = bound_ns
        self._least_ns: Final = least_ns
        self._most_ns: Final = most_ns
        self._adaptive: Final = adaptive
        self._delays: Final[deque[tuple[Nanoseconds, Site]]] = deque(maxlen=DELAY_SAMPLES)

    def observe(self, sender: Site, delay_ns: Nanoseconds) -> None:
        self._delays.append((delay_ns, sender))

    def begin(self) -> None:
        """This clock has stepped: the delays measured so far are void."""
        self._delays.clear()

    def forget(self, site: Site) -> None:
        """The delays of a member that is gone no longer count."""
        left = [sample for sample in self._delays if sample[1] != site]
        self._delays.clear()
        self._delays.extend(left)

    def choose(self, peers: Iterable[PeerClock]) -> None:
        """Adapt to the delays seen here and to the bounds that others need."""
        if not self._adaptive:
            return
        if len(self._delays) >= FEWEST_DELAYS:
            self.demand_ns = self._demand_ns()
        most_ns = max(self._first_ns, MOST_TIMES * self.demand_ns)
        demands = (self._within(peer.note.bound_ns) for peer in peers if peer.note.settled)
        self.bound_ns = max(self.demand_ns, *(min(demand_ns, most_ns) for demand_ns in demands), 0)

    def _demand_ns(self) -> Nanoseconds:
        """The bound that the delays need. If it is long, or far longer than before, outliers do not count."""
        high_ns = sorted(self._delays)[len(self._delays) * 99 // 100][0]
        demand_ns = self._within(high_ns + high_ns // 4 + MARGIN_NS)
        if demand_ns <= min(2 * self.demand_ns, self._first_ns):
            return demand_ns
        limit_ns = max(self._first_ns, MOST_TIMES * max(self._usual_ns(), default=0))
        plausible = [delay_ns for delay_ns, _ in sorted(self._delays) if delay_ns <= limit_ns]
        if not plausible:
            return self.demand_ns  # only late strangers were heard
        high_ns = plausible[len(plausible) * 99 // 100]
        return self._within(high_ns + high_ns // 4 + MARGIN_NS)

    def _usual_ns(self) -> list[Nanoseconds]:
        """The median delay of each sender's latest PDUs; of three or more, without the slowest third."""
        delays: dict[Site, list[Nanoseconds]] = {}
        for delay_ns, sender in reversed(self._delays):
            latest = delays.setdefault(sender, [])
            if len(latest) < LATEST_OF_ONE:
                latest.append(delay_ns)
        usual = (sorted(each) for each in delays.values() if len(each) >= FEWEST_OF_ONE)
        medians = sorted(each[len(each) // 2] for each in usual)
        return medians[: len(medians) - len(medians) // 3]

    def _within(self, bound_ns: Nanoseconds) -> Nanoseconds:
        return max(self._least_ns, min(bound_ns, self._most_ns))
