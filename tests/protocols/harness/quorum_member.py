"""A member of a replicated group between fakes, for the tests of the quorum protocol."""

from dataclasses import replace
from random import Random
from typing import Any

from antiphon.core.effects import Multicast, Send
from antiphon.core.inputs import Received, Start, TimerFired
from antiphon.core.time import MILLISECOND_NS, SECOND_NS
from antiphon.protocols.quorum import Quorum, QuorumConfiguration
from antiphon.protocols.quorum import ports as qp
from antiphon.protocols.quorum.pdus import Append, Ask, Config, Entry, Forward, Vote

GROUP = 77
VOTERS = Config({"a": 1, "b": 1, "c": 1})
FIVE = Config({"a": 1, "b": 1, "c": 1, "d": 1, "e": 1})


class Member:
    """A protocol with its own clock, and everything that it has asked for."""

    def __init__(
        self, site: str = "a", base: Config = VOTERS, *, stores: bool = False, **recovered: Any
    ) -> None:
        durable = qp.Durable(1, GROUP, base, recovered.pop("term", 0), "")
        snapshot = recovered.pop("snapshot", None)
        state = qp.Recovered(durable, snapshot, tuple(recovered.pop("entries", ())))
        knobs = replace(QuorumConfiguration(stores=stores), **recovered)
        self.protocol = Quorum(site, tuple(base.voters), knobs, Random(1), state)
        self.now = SECOND_NS
        self.out: list[Any] = []
        self.give(Start(5))

    def give(self, event: Any) -> list[Any]:
        found = self.protocol.handle(self.now, event)
        self.out += found
        return found

    def hear(self, sender: str, pdu: Any) -> list[Any]:
        return [each.pdu for each in self.give(Received(sender, pdu)) if isinstance(each, Send | Multicast)]

    def answers(self, sender: str, pdu: Any) -> list[Any]:
        """What it sends, without its own batches."""
        return [each for each in self.hear(sender, pdu) if not isinstance(each, Forward)]

    def lead(self) -> None:
        """Win an election with every vote of the others."""
        self.now += SECOND_NS
        self.give(TimerFired("election"))
        self.now += MILLISECOND_NS
        self.give(TimerFired("election"))
        term = self.protocol.term
        others = [name for name in self.protocol.config.voters if name != "a"]
        for name in others:
            self.hear(name, Vote(GROUP, 1, term + 1, True, True))
        for name in others:
            self.hear(name, Vote(GROUP, 1, term + 1, True, False))
        assert self.protocol.is_leader

    def applied(self) -> list[int]:
        return [each.index for each in self.out if isinstance(each, qp.Apply)]


def ask(term: int, *, last: int = 0, last_term: int = 0, trial: bool = False) -> Ask:
    return Ask(GROUP, 1, term, last, last_term, trial)


def append(term: int, previous: int, previous_term: int, *entries: Entry, commit: int = 0) -> Append:
    return Append(GROUP, 1, term, previous, previous_term, commit, 0, entries)
