"""Agreement on one log by a majority: what replicated objects stand on.

Sources: Ongaro and Ousterhout, 'In Search of an Understandable Consensus Algorithm' (2014): terms, votes, the
log and its matching rule (sections 5.1 to 5.4), snapshots (7), sessions of clients (8). Ongaro's dissertation
(2014): changes of one member at a time with learners (4.1, 4.2.1) and the correction of 2015 (a leader first
commits an entry of its own term), leadership transfer (3.10), trial votes and leaders that step down without
a majority (6.2, 9.6), batches and pipelines (10.2). Liskov and Cowling, 'Viewstamped Replication Revisited'
(2012), section 4.3: members without a disk, which recover from the others.

Why not DPG or the agreement of meta-groups: DPG's order does not depend on membership, so both sides of a
partition go on and their orders fork; it cannot know that a majority holds a message at its position. The
agreement of meta-groups decides who is a member, and not where each message stands. A position that is never
taken back needs a majority that holds it before anyone acts on it: that is this protocol, and nothing less.

Assumes: the network may lose, delay, duplicate, reorder and partition. Members may crash and come back, with
their disk or without memory, and stand still for any time. A disk that says so has what was written. Clocks
play no part in safety. Members do not lie: their PDUs are checked for sense, not for honesty.

Guarantees: *agreement*: no two members apply different entries at one index. *Once*: a batch takes effect at
most once, and in the order of its process. *Durability*: what took effect anywhere is in the log of every
later leader, as long as of each majority at most a minority loses its memory before it is replaced.
*Linearizability* of calls follows; `antiphon.check.linearizable` judges histories, and
`tests/protocols/quorum` compares what members applied. *Progress* while a majority of the voters is up and in
contact.

Deviations, and why:
- A voter is a name with the identity of its memory. A process without its memory is another voter: see
  `membership`. So a lost disk, or a member without any, cannot vote with a forgotten past.
- The first start needs every member named, or a majority that keeps stores, or an agreement of as many as are
  expected: see `founding`. Static bootstrapping, as usual, could not tell a first start from a member that
  lost its memory.
- New entries are multicast, once for all followers, and losses are answered with `lacking`.
- Where two members are a majority (groups of two and three), a follower knows that an entry is agreed upon
  as soon as it holds it itself and the leader says that it does: no further message is waited for.
- Without disks, only as many followers as the leader needs acknowledge at once (`Append.prompt`); the others
  wait up to `late_ns`. It saves a datagram per entry and member, and costs that time where a member that was
  named has died, until the next sign of life.
- Snapshots are fetched by the member that needs them, piece by piece: see `transfer`.
- Reads go through the log, as an empty batch: no clock and no lease is trusted.
"""

from collections.abc import Callable, Collection
from random import Random
from typing import Any, Final

from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import Received, Start, TimerFired
from antiphon.core.time import Nanoseconds
from antiphon.protocols.quorum import ports
from antiphon.protocols.quorum.caller import FORWARD, Caller
from antiphon.protocols.quorum.election import ELECTION, REPEAT, Election
from antiphon.protocols.quorum.follower import LATE, Follower
from antiphon.protocols.quorum.leader import HEARTBEAT, Leader
from antiphon.protocols.quorum.membership import GREET, Membership
from antiphon.protocols.quorum.pdus import (
    LARGEST_BODY_BYTES,
    PDUS,
    Acknowledge,
    Agree,
    Append,
    Ask,
    Bye,
    Change,
    Config,
    Expect,
    Fetch,
    Forward,
    Found,
    Greet,
    Handover,
    Offer,
    Piece,
    QuorumConfiguration,
    Removed,
    Vote,
)
from antiphon.protocols.quorum.ports import QuorumEffect, QuorumInput, Recovered
from antiphon.protocols.quorum.sessions import Sessions
from antiphon.protocols.quorum.state import Role, State
from antiphon.protocols.quorum.transfer import TRANSFER, Transfer

__all__ = ["LARGEST_BODY_BYTES", "PDUS", "Config", "Quorum", "QuorumConfiguration", "Role"]

MOST_WAITING: Final = 64
"""Most batches of this process that wait for a place; it refuses further ones. Raising it costs memory."""


class Quorum:
    """One member of a replicated group. Its inputs and effects are in `ports`."""

    def __init__(
        self,
        site: Site,
        members: Collection[Site],
        configuration: QuorumConfiguration,
        random: Random,
        recovered: Recovered | None = None,
    ) -> None:
        """`members` are the names that found the group; a member that is added later is not among them.
        Without any, this process waits until it is added."""
        self._state = state = State(site, configuration, random, recovered)
        self._leader = Leader(state)
        self._election = Election(state, self._leader.begin, self._leader.end)
        self._leader.open(self._election)
        self._follower = Follower(state, self._election)
        self._membership = Membership(state, frozenset(members), self._leader)
        self._transfer = Transfer(state, self._election)
        self._caller = Caller(state, self._leader)
        self._started = False
        state.taken = self._caller.taken
        state.restored = self._caller.restored
        state.adopted = self._adopted

    # What a driver may ask

    @property
    def leader(self) -> Site | None:
        return self._state.leader

    @property
    def is_leader(self) -> bool:
        return self._state.role is Role.LEADER

    @property
    def is_cut_off(self) -> bool:
        return self._state.is_severed

    @property
    def holders(self) -> list[Site]:
        """Members of a group that this process does not belong to (yet)."""
        return [] if self._state.group else self._membership.founding.holders

    @property
    def obstacle(self) -> str:
        """Why this process belongs to no group yet, in one sentence; empty if it belongs to one."""
        return "" if self._state.group else self._membership.founding.obstacle

    @property
    def config(self) -> Config:
        """The members, agreed upon."""
        return self._state.log.config_at(self._state.commit)

    @property
    def commit(self) -> int:
        return self._state.commit

    @property
    def new_bytes(self) -> int:
        """Bytes of the entries that the latest snapshot does not cover."""
        return self._state.log.new_bytes

    @property
    def snapshot_bytes(self) -> int:
        """Bytes of the latest snapshot; 0 if there is none."""
        return 0 if self._state.snapshot is None else self._state.snapshot.size

    @property
    def snapshot_index(self) -> int:
        return 0 if self._state.snapshot is None else self._state.snapshot.index

    @property
    def has_room(self) -> bool:
        """Whether a further batch may be handed in."""
        return self._caller.waiting < MOST_WAITING and not self._state.is_severed

    @property
    def identity(self) -> int:
        return self._state.identity

    @property
    def group(self) -> int:
        """The group that this process belongs to; 0 if to none."""
        return self._state.group

    @property
    def sessions(self) -> Sessions:
        """The sessions as what is agreed upon leaves them."""
        return self._state.sessions

    @property
    def unplaced(self) -> list[tuple[int, bytes]]:
        """The tickets and bodies of this process's batches without a place."""
        return self._caller.unplaced

    @property
    def life(self) -> int:
        """The session of this process."""
        return self._state.life

    @property
    def term(self) -> int:
        return self._state.term

    def identity_of(self, site: Site) -> int:
        """The latest identity of a member, or of its session, that is known here; 0 if there is none."""
        state = self._state
        if site == state.site:
            return 0
        known = state.config.identity_of(site) or 0
        return max(known, self._membership.seen.get(site, 0), state.sessions.latest(site))

    def figures(self) -> dict[str, int]:
        """Figures for a user."""
        state = self._state
        return {
            "term": state.term, "commit": state.commit, "log_entries": state.log.last - state.log.base,
            "log_bytes": state.log.size, "waiting_batches": self._caller.waiting, "ignored": state.ignored,
            "unstored_bytes": state.unstored_bytes, "fetched_bytes": self._transfer.fetched_bytes,
        }  # fmt: skip

    # The contract

    def handle(self, now: Nanoseconds, event: QuorumInput) -> list[QuorumEffect]:
        state = self._state
        if not self._started and type(event) is not Start:
            raise UsageError("A member takes inputs only after its start.")
        before = state.leader
        self._handle(now, event)
        if state.leader != before and state.leader is not None:
            self._caller.on_leader(now)
        if state.role is Role.LEADER:
            self._caller.pump(now)
            self._leader.flush(now)
        out, state.out = state.out, []
        return out

    def recover(self, now: Nanoseconds) -> list[QuorumEffect]:
        """The last input made `handle` raise: go on without it, as a member that knows no leader.

        What was changed before stays, and is stored whole.
        """
        state = self._state
        self._election.follow(now, state.term, None)
        self._transfer.drop()
        self._follower.drop()
        self._caller.on_fault()
        state.store_all()
        state.arm(GREET, state.knobs.greet_ns)
        out, state.out = state.out, []
        return out

    def _handle(self, now: Nanoseconds, event: QuorumInput) -> None:
        if type(event) is Received:
            self._on_pdu(now, event.sender, event.pdu)
            return
        match event:
            case TimerFired(name=name):
                self._fire(now, name)
            case ports.Call(ticket=ticket, body=body):
                self._call(now, ticket, body)
            case ports.Stored(position=position):
                self._state.stored(now, position)
            case ports.ClockTick(time_ns=time_ns):
                self._leader.tick(now, time_ns)
            case ports.Snapshotted(data=data):
                self._transfer.take_own(now, data)
            case ports.Abandon():
                self._caller.abandon()
            case ports.Wish(name=name, remove=remove):
                self._membership.wish(now, name, remove=remove)
            case ports.Leave():
                self._leave(now)
            case ports.Seal(on=on):
                self._leader.seal(now, on=on)
            case ports.TakeIn(source=source, data=data):
                self._leader.take_in(now, source, data)
            case Start():
                self._start(now, event)

    def _start(self, now: Nanoseconds, event: Start) -> None:
        state = self._state
        if self._started:
            raise UsageError("This member has started already.")
        self._started = True
        state.life = event.incarnation
        if not state.identity or (state.knobs.expected and not state.group):
            # What an earlier process has agreed to is not stored, so it was another one.
            state.identity = event.incarnation
            state.save_durable()
        state.contact_ns = now
        self._caller.begin()
        self._membership.start(now)
        self._election.arm(now)

    def _adopted(self, now: Nanoseconds) -> None:
        self._election.arm(now)

    def _call(self, now: Nanoseconds, ticket: int, body: bytes) -> None:
        if len(body) > LARGEST_BODY_BYTES:
            raise UsageError(
                f"A batch of {len(body):,} bytes does not fit a PDU.", f"At most {LARGEST_BODY_BYTES:,} do."
            )
        self._caller.call(now, ticket, body)

    def _leave(self, now: Nanoseconds) -> None:
        """The session ends, and another member leads."""
        state = self._state
        if state.role is Role.LEADER:
            self._leader.depart(now, state.site)
            self._leader.flush(now)
            self._leader.hand_over()
        elif state.leader is not None:
            state.send(state.leader, Bye(state.group, state.life))

    def _fire(self, now: Nanoseconds, name: str) -> None:
        if name == HEARTBEAT:
            self._leader.fire(now)
            self._membership.tend(now)
        elif name == ELECTION:
            self._election.fire(now)
        elif name == REPEAT:
            self._election.repeat()
        elif name == LATE:
            self._follower.fire()
        elif name == FORWARD:
            self._caller.fire(now)
        elif name == GREET:
            self._membership.fire(now)
        elif name == TRANSFER:
            self._transfer.fire()

    # PDUs

    def _on_pdu(self, now: Nanoseconds, sender: Site, pdu: Any) -> None:
        state = self._state
        act = self._acts.get(type(pdu))
        if act is None or sender == state.site or state.is_expelled:
            state.ignored += 1
        elif type(pdu) is Greet:
            self._membership.on_greet(now, sender, pdu)
        elif type(pdu) is Found:
            self._membership.on_found(now, sender, pdu)
        elif type(pdu) is Agree:
            self._membership.founding.on_agree(now, sender, pdu)
        elif pdu.group == state.group and state.group:
            act(self, now, sender, pdu)

    def _on_bye(self, now: Nanoseconds, sender: Site, pdu: Bye) -> None:
        if self.is_leader:
            self._leader.depart(now, sender, pdu.life)

    _acts: Final[dict[type, Callable[["Quorum", Nanoseconds, Site, Any], None]]] = {
        Greet: lambda _self, _now, _sender, _pdu: None,
        Found: lambda _self, _now, _sender, _pdu: None,
        Agree: lambda _self, _now, _sender, _pdu: None,
        Ask: lambda self, now, sender, pdu: self._election.on_ask(now, sender, pdu),
        Vote: lambda self, now, sender, pdu: self._election.on_vote(now, sender, pdu),
        Append: lambda self, now, sender, pdu: self._follower.on_append(now, sender, pdu),
        Acknowledge: lambda self, now, sender, pdu: self._leader.on_acknowledge(now, sender, pdu),
        Forward: lambda self, now, sender, pdu: self._leader.on_forward(now, sender, pdu),
        Expect: lambda self, now, sender, pdu: self._caller.on_expect(now, sender, pdu),
        Offer: lambda self, now, sender, pdu: self._transfer.on_offer(now, sender, pdu),
        Fetch: lambda self, now, sender, pdu: self._transfer.on_fetch(now, sender, pdu),
        Piece: lambda self, now, sender, pdu: self._transfer.on_piece(now, sender, pdu),
        Change: lambda self, now, sender, pdu: self._membership.on_change(now, sender, pdu),
        Handover: lambda self, now, sender, pdu: self._election.on_handover(now, sender, pdu),
        Removed: lambda self, now, sender, pdu: self._election.on_removed(now, sender, pdu),
        Bye: _on_bye,
    }
