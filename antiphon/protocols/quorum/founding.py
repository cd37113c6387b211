"""How a group is founded: once, by processes that belong to no group, so that no two groups can go on.

*Members named.* The lowest name that is there founds the group when every member answers that it belongs to
none. Where all that are there keep a store, a majority is enough, after some patience: the others are voters
without a memory, and are taken in like members that have lost theirs. Two founders may both succeed,
if the network hides them from each other. Their groups have the same names, and a process that has voted in
one does not vote in the other, so at most one of them ever has a leader.

Without stores a majority would not be enough. Of `a`, `b` and `c`, let `a` and `b` found the group and
acknowledge a command, and let `a` restart. If `b` is out of reach now, `a` and `c` are a majority without any
memory: they would begin empty, though only one member has lost what it had.

*Members counted.* With `expected`, the names are not known before. A process that sees exactly that many
processes without a group, itself among them, may agree to found a group of these, and agrees to no other for
as long as it lives. The lowest name founds the group when all have agreed. Two groups thus share no process:
fewer than twice the expected number never found two.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.quorum.pdus import MOST_VOTERS, Agree, Config, Found, Greet
from antiphon.protocols.quorum.state import State

GREETINGS: Final = 3
"""A founder greets this often before it founds a group, so that members of a running group can answer."""
PATIENT_GREETINGS: Final = 25
"""It greets this often before a majority is enough. Raising it costs time where members are missing."""
FRESH_GREETINGS: Final = 50
"""An answer counts for as long as this many greetings take. Raising it costs time after a process that
answered has ended."""
UNKNOWN: Final = 0
"""The identity of a voter that was not there when the group was founded."""


class Answer(NamedTuple):
    """What a process answered to our greetings."""

    identity: int
    group: int
    stores: bool
    expected: int
    heard_ns: Nanoseconds


class Founding:
    """One process's part in founding a group."""

    def __init__(
        self, state: State, members: frozenset[Site], adopt: Callable[[Nanoseconds, int, Config], None]
    ) -> None:
        self._state: Final = state
        self._members: Final = members
        self._adopt: Final = adopt
        self._answers: dict[Site, Answer] = {}
        self._greeted = 0
        self._agreed_to: dict[Site, int] = {}
        """The processes that this one has agreed to found a group with."""
        self._agreed: set[Site] = set()
        """Of these, those that have told this founder that they agree."""

    @property
    def holders(self) -> list[Site]:
        """The processes that said that they belong to a group, while this one belongs to none."""
        return sorted(name for name, answer in self._answers.items() if answer.group)

    @property
    def obstacle(self) -> str:
        """Why there is no group yet, in one sentence."""
        if not self._members:
            return self._obstacle_of_counted() if self._state.knobs.expected else "no group has added it"
        missing = self._members - {self._state.site, *self._answers}
        who = ", ".join(f"'{name}'" for name in sorted(missing)) or "none"
        needed = "most members with a store" if self._state.knobs.stores else "all members, without store="
        return f"the first start needs {needed}; the missing ones are {who}"

    def _obstacle_of_counted(self) -> str:
        expected = self._state.knobs.expected
        for name, answer in sorted(self._answers.items()):
            if answer.expected != expected:
                return f"it expects {expected} members, and '{name}' {answer.expected or 'names them'}"
        names = sorted({self._state.site, *self._answers})
        listed = ", ".join(f"'{name}'" for name in names)
        if len(names) != expected:
            return f"it expects {expected} members, and {len(names)} are there: {listed}"
        return f"{listed} have not agreed to be the group, since some had agreed to another: restart all"

    def begin(self) -> None:
        """Begin anew: the group that was founded is given up."""
        self._answers.clear()
        self._greeted = 0

    def greeting(self, now: Nanoseconds) -> None:
        """This process, which belongs to no group, has greeted: see whether a group can be founded."""
        self._greeted += 1
        oldest_ns = now - FRESH_GREETINGS * self._state.knobs.greet_ns
        for name in [name for name, each in self._answers.items() if each.heard_ns < oldest_ns]:
            del self._answers[name]
        self._look(now)

    def on_answer(self, now: Nanoseconds, sender: Site, pdu: Greet) -> None:
        is_of_use = sender in self._members if self._members else self._state.knobs.expected
        if is_of_use and (sender in self._answers or len(self._answers) < MOST_VOTERS):
            self._answers[sender] = Answer(pdu.identity, pdu.group, pdu.stores, pdu.expected, now)
            self._look(now)

    def _look(self, now: Nanoseconds) -> None:
        if self._state.group or self._greeted < GREETINGS or self.holders:
            return
        if self._members:
            self._look_at_named(now)
        elif self._state.knobs.expected:
            self._propose(now)

    # Members named

    def _look_at_named(self, now: Nanoseconds) -> None:
        members, there = self._members, self._processes()
        if self._state.site not in members or self._state.site != min(there):
            return
        is_patient = self._greeted >= PATIENT_GREETINGS and self._all_store
        if not self._all_expect(0):
            return
        if len(there) == len(members) or (is_patient and 2 * len(there) > len(members)):
            self._found(now, {name: there.get(name, UNKNOWN) for name in sorted(members)})

    @property
    def _all_store(self) -> bool:
        return self._state.knobs.stores and all(each.stores for each in self._answers.values())

    def _processes(self) -> dict[Site, int]:
        """The processes without a group, with their identities."""
        found = {name: answer.identity for name, answer in self._answers.items()}
        found[self._state.site] = self._state.identity
        return dict(sorted(found.items()))

    # Members counted

    def _propose(self, now: Nanoseconds) -> None:
        there = self._processes()
        if self._state.site == min(there) and self._agrees_to(there):
            if len(there) == 1:
                self._found(now, there)
            else:
                self._state.multicast(Agree(there))

    def _agrees_to(self, processes: dict[Site, int]) -> bool:
        """Agree to found a group of these, unless this process sees others or has agreed to others."""
        expected = self._state.knobs.expected
        sees_them = processes == self._processes() and len(processes) == expected
        if sees_them and not self._agreed_to and not self.holders and self._all_expect(expected):
            self._agreed_to = processes
        return self._agreed_to == processes

    def _all_expect(self, expected: int) -> bool:
        return all(answer.expected == expected for answer in self._answers.values())

    def on_agree(self, now: Nanoseconds, sender: Site, pdu: Agree) -> None:
        state = self._state
        if state.group or not state.knobs.expected or not {sender, state.site} <= pdu.members.keys():
            return
        if sender == min(pdu.members):
            if self._agrees_to(dict(sorted(pdu.members.items()))):
                state.send(sender, Agree(self._agreed_to))
        elif state.site == min(pdu.members) and pdu.members == self._agreed_to:
            self._agreed.add(sender)
            if len(self._agreed) == len(self._agreed_to) - 1:
                self._found(now, self._agreed_to)

    def _found(self, now: Nanoseconds, voters: dict[Site, int]) -> None:
        state = self._state
        self._adopt(now, 1 + state.random.getrandbits(62), Config(voters))
        state.multicast(Found(state.group, state.log.base_config))
