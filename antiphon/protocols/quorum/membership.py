"""Members: how processes find their group, and how members are added, removed and taken back.

A process that has lost its memory has another identity. It is no voter: the voter that it was may have
promised what it no longer remembers. The leader replaces the lost voter by a learner, which becomes a voter
when it has caught up. The voters change by one member at a time, and each change is agreed upon before the
next one: any majority of the voters before a change and any majority after it share a member.
"""

from typing import Final

import msgspec

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.quorum.founding import Founding
from antiphon.protocols.quorum.leader import Leader
from antiphon.protocols.quorum.pdus import CONFIG, MOST_VOTERS, NO_CONFIG, Change, Config, Entry, Found, Greet
from antiphon.protocols.quorum.ports import Expelled, Founded
from antiphon.protocols.quorum.state import Role, State

GREET: Final = "greet"
CAUGHT_UP: Final = 64
"""A learner that lacks at most this many entries becomes a voter."""
MOST_SEEN: Final = 256
"""Processes whose identity is remembered. Raising it costs memory."""
LEADERLESS_GREETINGS: Final = 100
"""A new group that has no leader for as long as this many greetings take is given up. Raising it costs time
where a founder has lost its memory; lowering it costs foundings on a slow network."""
SETTLED_GREETINGS: Final = 8
"""A process that knows a leader looks this many times less often whether it must greet."""


class Membership:
    """Greetings, and the leader's changes."""

    def __init__(self, state: State, members: frozenset[Site], leader: Leader) -> None:
        self._state = state
        self._leader = leader
        self.founding: Final = Founding(state, members, self._adopt)
        self.seen: dict[Site, int] = {}
        """The identities of processes that belong to no group; the one that greeted last is at the end."""
        self._leaderless = 0
        """How often this process looked in vain for the first leader of its group."""
        self._wishes: dict[Site, bool] = {}
        """Members to add or to remove, the latest wish at the end. Members repeat their wishes."""

    # Greetings

    def start(self, now: Nanoseconds) -> None:
        """Greet as soon as the identity is safe: another one would be another voter."""
        if not self._state.group:
            self._state.when_stored(now, self.fire)

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
                self._greet()
            state.arm(GREET, state.knobs.greet_ns * SETTLED_GREETINGS)
            return
        if not state.group:
            self._greet()
            state.look_for_contact(now)
            self.founding.greeting(now)
        elif state.log.last == 0:
            state.multicast(Found(state.group, state.log.base_config))
            self._look_whether_to_give_up()
        state.arm(GREET, state.knobs.greet_ns)

    def _look_whether_to_give_up(self) -> None:
        """Begin again if the group gets no leader: a process that has not voted has promised nothing."""
        state = self._state
        self._leaderless += 1
        if self._leaderless >= LEADERLESS_GREETINGS and state.term == 0 and not state.knobs.expected:
            self._leaderless = 0
            state.group = 0
            state.log.begin(0, 0, NO_CONFIG)
            state.save_durable()
            self.founding.begin()

    def _greet(self) -> None:
        """Ask everyone to answer, as a process without a group."""
        state = self._state
        state.multicast(Greet(state.identity, 0, 0, state.knobs.stores, state.knobs.expected))

    def on_greet(self, now: Nanoseconds, sender: Site, pdu: Greet) -> None:
        state = self._state
        if not pdu.group:
            self._note(sender, pdu.identity)
        if pdu.answers == state.identity:
            self.founding.on_answer(now, sender, pdu)
        elif not pdu.answers:
            knobs = state.knobs
            state.send(sender, Greet(state.identity, state.group, pdu.identity, knobs.stores, knobs.expected))
        if state.group and not pdu.group:
            self._show_group(sender, pdu.identity)

    def _note(self, name: Site, identity: int) -> None:
        """A process exists that does not belong to this group. It greets until it does."""
        self.seen[name] = max(identity, self.seen.pop(name, 0))
        if len(self.seen) > MOST_SEEN:
            del self.seen[next(iter(self.seen))]

    def _show_group(self, sender: Site, identity: int) -> None:
        """Tell a process that belongs to no group yet that it belongs to ours."""
        state = self._state
        is_leader = state.role is Role.LEADER and state.config.identity_of(sender) == identity
        is_founder = state.log.base == 0 and state.log.base_config.voters.get(sender) == identity
        if is_leader or is_founder:
            state.send(sender, Found(state.group, state.log.base_config, identity))

    def on_found(self, now: Nanoseconds, sender: Site, pdu: Found) -> None:
        """A process that has not voted yet may be told of another group: it has promised nothing.

        Where two groups were founded, the lower one goes on, unless the other has a leader by then.
        """
        state = self._state
        if pdu.group == state.group or not pdu.group:
            return
        if state.role is Role.LEADER:
            self._call_over(sender, pdu.base)
            return
        is_empty = state.log.last == 0
        is_free = is_empty and state.term == 0 and (pdu.to or pdu.group < state.group)
        is_named = pdu.base.voters.get(state.site) == state.identity and not pdu.to
        if (not state.group or is_free or (is_empty and pdu.is_led)) and (
            is_named or pdu.to == state.identity
        ):
            self._adopt(now, pdu.group, pdu.base)

    def _call_over(self, sender: Site, base: Config) -> None:
        """A member voted in another group, which cannot have a leader, since this one has: call it here."""
        state, identity = self._state, base.voters.get(sender, 0)
        known = state.config.identity_of(sender)
        if known is None or not identity:
            return
        self._note(sender, identity)
        if known == identity:
            state.send(sender, Found(state.group, state.log.base_config, identity, True))

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
            self._wishes.pop(name, None)
            self._wishes[name] = remove
            if len(self._wishes) > MOST_VOTERS:
                del self._wishes[next(iter(self._wishes))]
            self.tend(now)
        elif state.leader is not None:
            state.send(state.leader, Change(state.group, name, remove))

    def on_change(self, now: Nanoseconds, sender: Site, pdu: Change) -> None:
        if self._state.role is Role.LEADER and self._state.config.identity_of(sender) is not None:
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
