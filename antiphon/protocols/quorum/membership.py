"""Members: how a group is founded, and how members are added, removed and taken back.

A group is founded once, when every member that its processes were told of is there and belongs to no group.
The process with the lowest name founds it. Each other process answers that process itself, after it started:
so no member of an earlier group that still has its memory is overlooked.

A process that has lost its memory has another identity. It is no voter: the voter that it was may have
promised what it no longer remembers. The leader replaces the lost voter by a learner, which becomes a voter
when it has caught up. The voters change by one member at a time, and each change is agreed upon before the
next one: any majority of the voters before a change and any majority after it share a member.
"""

from typing import Final

import msgspec

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.quorum.leader import Leader
from antiphon.protocols.quorum.pdus import CONFIG, MOST_VOTERS, Change, Config, Entry, Found, Greet
from antiphon.protocols.quorum.ports import Expelled, Founded
from antiphon.protocols.quorum.state import Role, State

GREET: Final = "greet"
CAUGHT_UP: Final = 64
"""A learner that lacks at most this many entries becomes a voter."""
MOST_SEEN: Final = 256
"""Processes whose identity is remembered. Raising it costs memory."""
FOUNDING_GREETINGS: Final = 3
"""A founder greets this often before it founds a group, so that members of a running group can answer."""

SETTLED_GREETINGS: Final = 8
"""A process that knows a leader looks this many times less often whether it must greet."""


class Membership:
    """Greetings, the founding, and the leader's changes."""

    def __init__(self, state: State, members: frozenset[Site], leader: Leader) -> None:
        self._state = state
        self._members = members
        self._leader = leader
        self.seen: dict[Site, int] = {}
        """The identities of processes that belong to no group."""
        self._answers: dict[Site, tuple[int, int]] = {}
        """What each process answered to our greetings: its identity and its group."""
        self._wishes: dict[Site, bool] = {}
        """Members to add or to remove."""
        self._greeted = 0

    # Greetings

    def start(self, now: Nanoseconds) -> None:
        if not self._state.group:
            self.fire(now)

    def fire(self, now: Nanoseconds) -> None:
        """Greet while there is no group; then help the others to find it until there is a leader.

        A process that was shown a group, and is not among its members, greets on: the leader that was about
        to add it may be gone, and the next one must know of it.
        """
        state = self._state
        is_member = state.config.identity_of(state.site) == state.identity
        if state.is_expelled:
            return
        if state.group and state.leader is not None:
            if not is_member:
                state.multicast(Greet(state.identity, 0))
            state.arm(GREET, state.knobs.greet_ns * SETTLED_GREETINGS)
            return
        if not state.group:
            self._greeted += 1
            state.multicast(Greet(state.identity, 0))
            state.look_for_contact(now)
            self._try_to_found(now)
        elif state.log.last == 0 and state.log.base == 0:
            state.multicast(Found(state.group, state.log.base_config))
        state.arm(GREET, state.knobs.greet_ns)

    def on_greet(self, now: Nanoseconds, sender: Site, pdu: Greet) -> None:
        state = self._state
        if not pdu.group and (sender in self.seen or len(self.seen) < MOST_SEEN):
            self.seen[sender] = max(pdu.identity, self.seen.get(sender, 0))
        if pdu.answers == state.identity:
            if sender in self._members:
                self._answers[sender] = (pdu.identity, pdu.group)
                self._try_to_found(now)
        elif not pdu.answers:
            state.send(sender, Greet(state.identity, state.group, pdu.identity))
        if state.group and not pdu.group:
            self._show_group(sender, pdu.identity)

    def _show_group(self, sender: Site, identity: int) -> None:
        """Tell a process that belongs to no group yet that it belongs to ours."""
        state = self._state
        is_leader = state.role is Role.LEADER and state.config.identity_of(sender) == identity
        is_founder = state.log.base == 0 and state.log.base_config.voters.get(sender) == identity
        if is_leader or is_founder:
            state.send(sender, Found(state.group, state.log.base_config, identity))

    @property
    def holders(self) -> list[Site]:
        """The members that said that they belong to a group, while this process belongs to none."""
        return sorted(name for name, (_, group) in self._answers.items() if group)

    # Founding

    def _try_to_found(self, now: Nanoseconds) -> None:
        """Found the group if every member is there, and none belongs to a group."""
        state = self._state
        if (
            state.group
            or not self._members
            or state.site != min(self._members)
            or self._greeted < FOUNDING_GREETINGS
        ):
            return
        others = self._members - {state.site}
        if others <= self._answers.keys() and not any(self._answers[name][1] for name in others):
            voters = {name: self._answers[name][0] for name in sorted(others)} | {state.site: state.identity}
            self._adopt(now, 1 + state.random.getrandbits(62), Config(voters))
            state.multicast(Found(state.group, state.log.base_config))

    def on_found(self, now: Nanoseconds, pdu: Found) -> None:
        """A process that has not voted yet may be told of another group: it has promised nothing."""
        state = self._state
        is_free = not state.group or (state.term == 0 and state.log.last == 0)
        is_named = pdu.to == state.identity or (
            not pdu.to and pdu.base.voters.get(state.site) == state.identity
        )
        if is_free and is_named and pdu.group and pdu.group != state.group:
            self._adopt(now, pdu.group, pdu.base)

    def _adopt(self, now: Nanoseconds, group: int, base: Config) -> None:
        state = self._state
        state.group = group
        state.log.begin(0, 0, base)
        state.save_durable()
        state.contact_ns = now
        state.emit(Founded(base.voters.get(state.site) == state.identity))
        state.adopted(now)

    # The leader's changes

    def wish(self, now: Nanoseconds, name: Site, *, remove: bool) -> None:
        """The application wants a change: the leader notes it, every other member asks the leader."""
        state = self._state
        if state.role is Role.LEADER:
            if len(self._wishes) < MOST_VOTERS:
                self._wishes[name] = remove
            self.tend(now)
        elif state.leader is not None:
            state.send(state.leader, Change(state.group, name, remove))

    def on_change(self, now: Nanoseconds, pdu: Change) -> None:
        if self._state.role is Role.LEADER:
            self.wish(now, pdu.name, remove=pdu.remove)

    def tend(self, now: Nanoseconds) -> None:
        """Make the next change, if the last is agreed upon."""
        state = self._state
        if state.role is not Role.LEADER or max(state.log.config_index, self._leader.begun) > state.commit:
            return
        if not state.is_voter:
            self._step_down(now)
            return
        change = self._replacement() or self._promotion() or self._wished() or self._admission()
        if change is not None:
            self._leader.append(now, Entry(state.term, CONFIG, body=msgspec.msgpack.encode(change)))
            self._leader.look_at_members(now)

    def _step_down(self, now: Nanoseconds) -> None:
        """This leader has removed itself."""
        state = self._state
        self._leader.hand_over()
        self._leader.resign(now)
        if not state.is_expelled:
            state.is_expelled = True
            state.emit(Expelled())

    def _replacement(self) -> Config | None:
        """A member has lost its memory: it begins again as a learner."""
        config = self._state.config
        for name in config.names:
            known = config.identity_of(name)
            assert known is not None
            if self.seen.get(name, 0) > known:
                if len(config.voters) == 1 and name in config.voters:
                    return None
                return Config(_without(config.voters, name), {**config.learners, name: self.seen[name]})
        return None

    def _promotion(self) -> Config | None:
        """A learner has caught up: it becomes a voter."""
        config, last = self._state.config, self._state.log.last
        for name, identity in sorted(config.learners.items()):
            peer = self._leader.peers.get(name)
            if peer is not None and peer.match >= max(1, last - CAUGHT_UP):
                return Config({**config.voters, name: identity}, _without(config.learners, name))
        return None

    def _wished(self) -> Config | None:
        config = self._state.config
        for name, remove in list(self._wishes.items()):
            is_there = config.identity_of(name) is not None
            if remove != is_there:
                del self._wishes[name]
            elif remove and config.voters.keys() != {name}:
                return Config(_without(config.voters, name), _without(config.learners, name))
            elif not remove and name in self.seen and len(config.names) < MOST_VOTERS:
                return Config(config.voters, {**config.learners, name: self.seen[name]})
        return None

    def _admission(self) -> Config | None:
        """A process that belongs to no group has come: it begins as a learner."""
        config = self._state.config
        if not self._state.knobs.admits_all or len(config.names) >= MOST_VOTERS:
            return None
        found = next((name for name in sorted(self.seen) if config.identity_of(name) is None), None)
        return None if found is None else Config(config.voters, {**config.learners, found: self.seen[found]})


def _without(members: dict[Site, int], name: Site) -> dict[Site, int]:
    return {each: identity for each, identity in members.items() if each != name}
