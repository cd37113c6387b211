"""The leader: it gives every batch its place, sends it to all at once, and counts who holds it.

New entries go to everyone in one multicast. A member that lacks what comes before them says so, and is fed
by unicast until it has caught up; with a snapshot, if the entries are gone. An entry is agreed upon when a
majority of the voters holds it and it is of the leader's own term, or a later one of that term is.
"""

from collections import deque
from typing import Final

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.quorum.election import Election
from antiphon.protocols.quorum.pdus import (
    BATCH,
    DEPART,
    ENTER,
    MERGE,
    NOOP,
    SEAL,
    TICK,
    Acknowledge,
    Append,
    Entry,
    Expect,
    Forward,
    Handover,
    Offer,
    Removed,
)
from antiphon.protocols.quorum.sessions import Sessions
from antiphon.protocols.quorum.state import Role, State

HEARTBEAT: Final = "heartbeat"
QUORUM: Final = 3
"""A leader that has not heard a majority for this multiple of the usual silence steps down. Raising it costs
time in which calls at a leader that was cut off wait."""
MOST_PENDING: Final = 8192
"""Most entries that are not agreed upon; the leader refuses further ones. Raising it costs memory."""
LAST_TIME_NS: Final = (1 << 62) - 1
"""The greatest agreed time, in the year 2116: later ones would leave no room for what is to last."""
FEED: Final = 2
"""PDUs that a member which lags gets for each acknowledgement."""


class Progress:
    """What the leader knows about one other member."""

    __slots__ = ("heard_ns", "lack", "match", "next", "resent_ns")

    def __init__(self, following: int, now: Nanoseconds) -> None:
        self.next = following
        """The index of the next entry to send to it."""
        self.match = 0
        self.heard_ns = now
        self.lack = -1
        """The index behind which it last lacked entries."""
        self.resent_ns: Nanoseconds = 0


class Leader:
    """The role of a leader; without effect in other roles."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._election: Election | None = None
        self.peers: dict[Site, Progress] = {}
        self._sent = 0
        self._under_way: deque[int] = deque()
        """The last indices of PDUs with entries that are not agreed upon yet."""
        self._tails = Sessions()
        """The sessions as the whole log, agreed upon or not, leaves them."""
        self._announce = False
        self._prompt: tuple[Site, ...] = ()
        self.begun = 0
        """The index of the first entry of this leader's term."""

    def open(self, election: Election) -> None:
        self._election = election

    # Beginning and end

    def begin(self, now: Nanoseconds) -> None:
        """This member has won an election."""
        state, log = self._state, self._state.log
        self.peers = {}
        self._prompt = ()
        self._sent = log.last
        self._under_way.clear()
        self._tails = state.sessions.copy()
        for entry in log.behind(state.commit):
            self._tails.take(entry)
        self.look_at_members(now)
        state.led_by(state.site)
        state.in_contact(now)
        self.begun = log.last + 1
        self.append(now, Entry(state.term, NOOP))
        self.flush(now)
        state.arm(HEARTBEAT, state.knobs.heartbeat_ns)

    def end(self, _now: Nanoseconds) -> None:
        self.peers = {}
        self._under_way.clear()
        self._announce = False

    def look_at_members(self, now: Nanoseconds) -> None:
        """The members have changed."""
        names = set(self._state.config.names) - {self._state.site}
        self.peers = {
            name: self.peers.get(name) or Progress(self._state.log.last + 1, now) for name in sorted(names)
        }

    @property
    def _leads(self) -> bool:
        return self._state.role is Role.LEADER

    # Entries

    def append(self, now: Nanoseconds, entry: Entry) -> None:
        """Give an entry its place."""
        state = self._state
        state.append((entry,))
        self._tails.take(entry)
        term = state.term
        state.when_stored(now, lambda at: self._stored(at, term))

    def _stored(self, now: Nanoseconds, term: int) -> None:
        if self._leads and self._state.term == term:
            self._advance(now)

    def take(self, now: Nanoseconds, site: Site, life: int, number: int, body: bytes) -> int | None:
        """A batch is handed in. Returns the number that is expected instead, if it has come too early."""
        state = self._state
        if self.is_full or (number and self._tails.is_sealed):
            return None
        expected = self._tails.next(site, life)
        if expected is None or number < expected:
            return None
        if number > expected:
            return expected
        kind = BATCH if number else ENTER
        self.append(now, Entry(state.term, kind, site, life, number, body))
        return None

    @property
    def is_full(self) -> bool:
        state = self._state
        too_much = state.unstored_bytes > state.knobs.unstored_bytes
        return too_much or state.log.last - state.commit > MOST_PENDING

    def on_forward(self, now: Nanoseconds, sender: Site, pdu: Forward) -> None:
        state = self._state
        if not self._leads or state.config.identity_of(sender) != pdu.identity:
            return
        self.heard(now, sender)
        if not pdu.number and self._tails.next(sender, pdu.life) is None:
            state.send(sender, Expect(state.group, self._tails.latest(sender) + 1, 0))
            return
        expected = self.take(now, sender, pdu.life, pdu.number, pdu.body)
        if expected is not None:
            state.send(sender, Expect(state.group, pdu.life, expected))

    def tick(self, now: Nanoseconds, time_ns: int) -> None:
        """Pass the time on.

        Once the group has a time it goes on as fast as this member's steady clock: a time of day that was
        set back would stop it for as long, and one that was set forward would end what is still to last.
        """
        state, known = self._state, self._tails.time_ns
        if known and state.ticked_ns is not None:
            time_ns = known + now - state.ticked_ns
        time_ns = min(max(time_ns, known + 1), LAST_TIME_NS)
        if self._leads and time_ns > known and not self.is_full and not self._tails.is_sealed:
            state.ticked_ns = now
            self.append(now, Entry(state.term, TICK, number=time_ns))

    def seal(self, now: Nanoseconds, *, on: bool) -> None:
        """Let no batch take effect from here on, or let batches take effect again."""
        if self._leads and self._tails.is_sealed != on:
            self.append(now, Entry(self._state.term, SEAL, number=int(on)))

    def take_in(self, now: Nanoseconds, source: Site, data: bytes) -> None:
        """Give another side's state its place, piece by piece."""
        state = self._state
        size = state.knobs.batch_bytes
        pieces = [data[begin : begin + size] for begin in range(0, len(data), size)] or [b""]
        if self._leads and not self._tails.is_sealed:
            for number, piece in enumerate(pieces):
                self.append(now, Entry(state.term, MERGE, source, len(pieces), number, piece))

    def depart(self, now: Nanoseconds, site: Site, life: int | None = None) -> None:
        """A member is gone: end its session."""
        found = self._tails.life_of(site)
        if self._leads and found is not None and life in (None, found):
            self.append(now, Entry(self._state.term, DEPART, site, found))

    # Sending

    def flush(self, now: Nanoseconds) -> None:
        """Send what waits, as long as not too much is under way."""
        state, log = self._state, self._state.log
        if not self._leads:
            return
        while self._sent < log.last and self._count_under_way() < state.knobs.window:
            entries = log.some(self._sent + 1, state.knobs.batch_bytes)
            state.multicast(self._pdu(self._sent, entries, self._prompt))
            end = self._sent + len(entries)
            for peer in self.peers.values():
                if peer.next == self._sent + 1:
                    peer.next = end + 1
            self._sent = end
            self._under_way.append(end)
            self._announce = False
        if len(state.config.voters) <= 1:
            self._advance(now)
        if self._announce:
            self._announce = False
            state.multicast(self._pdu(self._sent, ()))

    def _count_under_way(self) -> int:
        while self._under_way and self._under_way[0] <= self._state.commit:
            self._under_way.popleft()
        return len(self._under_way)

    def _pdu(self, previous: int, entries: tuple[Entry, ...], prompt: tuple[Site, ...] = ()) -> Append:
        state = self._state
        term = state.log.term_at(previous)
        assert term is not None, "the entry before those that are sent is known"
        return Append(
            state.group, state.identity, state.term, previous, term, state.commit, state.durable_index,
            entries, prompt,
        )  # fmt: skip

    def fire(self, now: Nanoseconds) -> None:
        """Give a sign of life, and see whether a majority still answers."""
        state = self._state
        if not self._leads:
            return
        assert self._election is not None
        voters = state.config.voters
        patience_ns = QUORUM * self._election.silence_ns
        heard = [name for name, peer in self.peers.items() if now - peer.heard_ns < patience_ns]
        if sum(name in voters for name in heard) + state.is_voter < state.config.majority:
            self._election.follow(now, state.term, None)
            return
        state.in_contact(now)
        self._choose_prompt()
        self._look_for_departures(now)
        state.multicast(self._pdu(self._sent, ()))
        state.arm(HEARTBEAT, state.knobs.heartbeat_ns)

    def _choose_prompt(self) -> None:
        """Those that answered last make the majority; with disks all answer at once, since disks vary."""
        state = self._state
        others = [name for name in state.config.voters if name in self.peers]
        if state.knobs.stores or not state.is_voter:
            self._prompt = ()
        else:
            others.sort(key=lambda name: (-self.peers[name].heard_ns, name))
            self._prompt = tuple(others[: state.config.majority - 1])

    def _look_for_departures(self, now: Nanoseconds) -> None:
        for site in self._tails.open():
            peer = self.peers.get(site)
            is_gone = peer is None or now - peer.heard_ns >= self._state.knobs.depart_ns
            if is_gone and site != self._state.site:
                self.depart(now, site)

    # Acknowledgements

    def heard(self, now: Nanoseconds, site: Site) -> None:
        peer = self.peers.get(site)
        if peer is not None:
            peer.heard_ns = now

    def on_acknowledge(self, now: Nanoseconds, sender: Site, pdu: Acknowledge) -> None:
        state = self._state
        if pdu.term > state.term:
            assert self._election is not None
            if self._election.believes(now, sender, pdu.term, pdu.identity):
                self._election.follow(now, pdu.term, None)
            return
        peer = self.peers.get(sender)
        if not self._leads or pdu.term < state.term:
            return
        if peer is None:
            if state.log.config_index <= state.commit:
                state.send(sender, Removed(state.group, pdu.identity, state.log.config_index))
            return
        if state.config.identity_of(sender) != pdu.identity or (
            not pdu.lacking and pdu.match > state.log.last
        ):
            state.ignored += 1
            return
        peer.heard_ns = now
        if pdu.lacking:
            self._on_lack(now, sender, peer, min(pdu.match, state.log.last))
            return
        peer.next = max(peer.next, pdu.match + 1)
        if pdu.match > peer.match:
            peer.match = pdu.match
            self._advance(now)
        if peer.next <= self._sent:
            self._feed(sender, peer, FEED)

    def _on_lack(self, now: Nanoseconds, sender: Site, peer: Progress, index: int) -> None:
        """It lacks what follows an index. The same answer comes for each PDU that it could not take."""
        if index == peer.lack and now - peer.resent_ns < self._state.knobs.resend_ns:
            return
        peer.lack, peer.resent_ns = index, now
        peer.next = index + 1
        self._feed(sender, peer, self._state.knobs.window)

    def _feed(self, site: Site, peer: Progress, pdus: int) -> None:
        state, log = self._state, self._state.log
        if peer.next <= log.base:
            self._offer(site)
            return
        for _ in range(pdus):
            if peer.next > self._sent:
                return
            entries = log.some(peer.next, state.knobs.batch_bytes)[: self._sent + 1 - peer.next]
            state.send(site, self._pdu(peer.next - 1, entries))
            peer.next += len(entries)

    def _offer(self, site: Site) -> None:
        state, snapshot = self._state, self._state.snapshot
        assert snapshot is not None, "entries are forgotten only behind a snapshot"
        offer = Offer(
            state.group, state.identity, state.term, snapshot.index, snapshot.head.term, snapshot.size,
            snapshot.checksum,
        )  # fmt: skip
        state.send(site, offer)

    def _advance(self, now: Nanoseconds) -> None:
        """Find what a majority holds."""
        state = self._state
        held = sorted((self._held_by(name) for name in state.config.voters), reverse=True)
        if not held:
            return
        index = held[state.config.majority - 1]
        if index <= state.commit or state.log.term_at(index) != state.term:
            return
        is_known = state.config.majority == 2 and state.durable_index >= index and not state.knobs.stores
        self._announce |= not is_known
        state.commit_to(now, index)

    def _held_by(self, name: Site) -> int:
        if name == self._state.site:
            return self._state.durable_index
        peer = self.peers.get(name)
        return 0 if peer is None else peer.match

    # Leaving

    def hand_over(self) -> None:
        """Ask the voter that holds most to follow at once."""
        state = self._state
        best = max(
            (name for name in state.config.voters if name in self.peers),
            key=lambda name: self.peers[name].match,
            default=None,
        )
        if self._leads and best is not None:
            state.send(best, Handover(state.group, state.term, state.log.last))

    def resign(self, now: Nanoseconds) -> None:
        """Follow the next leader."""
        assert self._election is not None
        self._election.follow(now, self._state.term, None)
