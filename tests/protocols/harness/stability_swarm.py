"""A group under any stability protocol, driven through everything that a network and detectors can do.

Messages are lost, repeated and reordered, members crash and are suspected, one after another, of having done
so; others are suspected wrongly and restored; several rounds are triggered and overlap. Then all is healed,
and a round must find what all hold.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeAlias

from antiphon.core.effects import CancelTimer, Effect, Missing, Multicast, Send, SetTimer, Stable
from antiphon.core.inputs import Received, Restored, RoundTriggered, Suspected, TimerFired
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.stability.base import Objective

Make: TypeAlias = Callable[[str, Sequence[str], Sequence[str], Random], Any]
"""A member's protocol object: its site, the members, the senders, a source of randomness."""
LONGEST_REST = 40_000


class Swarm:
    """One random run of a group; everything is drawn from the seed."""

    def __init__(
        self,
        seed: int,
        make: Make,
        *,
        most_members: int = 6,
        objective: Objective = Objective.LEAST,
        codec: Codec | None = None,
        own_suspicion: bool = False,
    ) -> None:
        """With `own_suspicion` a member that computes a result goes by its own suspicion only."""
        self.draw = draw = Random(seed)
        self.objective = objective
        self.codec = codec
        self.own_suspicion = own_suspicion
        self.sites = tuple(f"s{index}" for index in range(draw.randint(2, most_members)))
        self.senders = self.sites[: draw.randint(1, len(self.sites))]
        self.group = {site: make(site, self.sites, self.senders, Random(site)) for site in self.sites}
        self.crashed: set[str] = set()
        self.ever_suspected: set[str] = set()
        self.suspicions: set[tuple[str, str]] = set()
        self.under_way: list[tuple[str, str, Pdu]] = []
        self.timers: set[tuple[str, str]] = set()
        self.declared = {site: dict.fromkeys(self.senders, 0) for site in self.sites}

    def live(self) -> list[str]:
        return [site for site in self.sites if site not in self.crashed]

    # Inputs and effects

    def give(self, site: str, event: Any) -> None:
        if site in self.crashed:
            return
        protocol = self.group[site]
        before, finished = protocol.stable, protocol.rounds_finished
        for effect in protocol.handle(0, event):
            self.carry_out(site, effect)
        assert all(now >= then for now, then in zip(protocol.stable, before, strict=True))
        if self.own_suspicion and protocol.rounds_finished > finished:
            self.check_computed(site, before)

    def carry_out(self, site: str, effect: Effect) -> None:
        if isinstance(effect, Send):
            assert effect.to != site, "no member sends to itself"
            self.under_way.append((site, effect.to, self.across(effect.pdu)))
        elif isinstance(effect, Multicast):
            others = self.sites if effect.to is None else effect.to
            pdu = self.across(effect.pdu)
            self.under_way += [(site, other, pdu) for other in others if other != site]
        elif isinstance(effect, SetTimer):
            self.timers.add((site, effect.name))
        elif isinstance(effect, CancelTimer):
            self.timers.discard((site, effect.name))
        elif isinstance(effect, Stable):
            self.check_stable(site, effect)
        else:
            assert isinstance(effect, Missing)
            self.check_missing(site, effect)

    def across(self, pdu: Pdu) -> Pdu:
        """What comes out of the wire; the same, or the codec is wrong."""
        if self.codec is None:
            return pdu
        packet = self.codec.decode(self.codec.encode(pdu))
        assert isinstance(packet, Packet)
        assert packet.pdu == pdu
        return packet.pdu

    # Safety

    def check_stable(self, site: str, news: Stable) -> None:
        """It follows on what was declared, and this member and all that were never suspected hold it."""
        assert self.objective is Objective.LEAST
        assert news.number == self.declared[site][news.sender]
        self.declared[site][news.sender] += news.count
        place = self.senders.index(news.sender)
        for other in self.sites:
            if other == site or other not in self.ever_suspected:
                assert self.declared[site][news.sender] <= self.group[other].held[place], (site, other, news)

    def check_computed(self, site: str, before: tuple[int, ...]) -> None:
        """All members that this member does not suspect are covered."""
        if self.objective is not Objective.LEAST:
            return
        for other in self.sites:
            if (site, other) not in self.suspicions:
                rows = zip(before, self.group[site].stable, self.group[other].held, strict=True)
                assert all(now == then or now <= held for then, now, held in rows), (site, other)

    def check_missing(self, site: str, news: Missing) -> None:
        """Another member has seen it, and this member has not."""
        assert self.objective is Objective.GREATEST
        place = self.senders.index(news.sender)
        assert news.number >= self.group[site].held[place]
        assert news.number + news.count <= max(self.group[other].held[place] for other in self.sites)

    # What happens to the group

    def deliver(self) -> None:
        source, target, pdu = self.under_way.pop(self.draw.randrange(len(self.under_way)))
        self.give(target, Received(source, pdu))

    def lose(self) -> None:
        self.under_way.pop(self.draw.randrange(len(self.under_way)))

    def repeat(self) -> None:
        self.under_way.append(self.draw.choice(self.under_way))

    def fire(self) -> None:
        timer = self.draw.choice(sorted(self.timers))
        self.timers.discard(timer)
        self.give(timer[0], TimerFired(timer[1]))

    def hold_more(self) -> None:
        protocol = self.group[self.draw.choice(self.live())]
        protocol.hold_all([count + self.draw.randint(0, 3) for count in protocol.held])

    def crash(self) -> None:
        if len(self.live()) > 1:
            self.crashed.add(self.draw.choice(self.live()))

    def suspect(self) -> None:
        """A crashed member is suspected by one of the others, or now and then a live one."""
        site = self.draw.choice(self.live())
        rightly = self.crashed and self.draw.random() < 0.8
        others = sorted(self.crashed) if rightly else [other for other in self.live() if other != site]
        if others:
            other = self.draw.choice(others)
            self.ever_suspected.add(other)
            self.suspicions.add((site, other))
            self.give(site, Suspected(other))

    def restore(self) -> None:
        if self.suspicions:
            site, other = self.draw.choice(sorted(self.suspicions))
            if other not in self.crashed:
                self.suspicions.discard((site, other))
                self.give(site, Restored(other))

    def trigger(self) -> None:
        site = self.draw.choice(self.live())
        if self.group[site].coordinator == site:
            self.give(site, RoundTriggered())

    def misbehave(self) -> None:
        choice = self.draw.random()
        traffic = bool(self.under_way)
        if choice < 0.45 and traffic:
            self.deliver()
        elif choice < 0.53 and traffic:
            self.lose()
        elif choice < 0.58 and traffic:
            self.repeat()
        elif choice < 0.68 and self.timers:
            self.fire()
        elif choice < 0.80:
            self.hold_more()
        elif choice < 0.88:
            self.trigger()
        elif choice < 0.93:
            self.suspect()
        elif choice < 0.97:
            self.restore()
        elif choice < 0.985:
            self.crash()

    # Liveness

    def heal(self) -> None:
        """Detectors are right, nothing is lost any more, and members that lack stable messages get them."""
        self.ever_suspected |= self.crashed
        for site in self.live():
            for other in self.sites:
                self.suspicions.discard((site, other))
                if other in self.crashed:
                    self.suspicions.add((site, other))
                self.give(site, Suspected(other) if other in self.crashed else Restored(other))
        if self.objective is Objective.LEAST:
            for site in self.live():
                rows = [self.group[other].stable for other in self.live()] + [self.group[site].held]
                self.group[site].hold_all([max(column) for column in zip(*rows, strict=True)])

    def trigger_first(self) -> None:
        first = self.live()[0]
        assert self.group[first].coordinator == first
        self.give(first, RoundTriggered())

    def come_to_rest(self) -> None:
        """Everything arrives and every timer fires; in the end no round is under way any more."""
        for _ in range(LONGEST_REST):
            if self.under_way:
                self.deliver()
            elif self.timers:
                self.fire()
            else:
                assert not any(self.group[site].under_way for site in self.live())
                return
        raise AssertionError("the group does not come to rest")

    def check_found(self) -> None:
        """Everyone knows what all hold, or how far anyone has seen."""
        held = [self.group[site].held for site in self.live()]
        found = [self.group[site].stable for site in self.live()]
        fold = min if self.objective is Objective.LEAST else max
        expected = tuple(map(fold, zip(*held, strict=True)))
        for row in found:
            assert all(known >= at_least for known, at_least in zip(row, expected, strict=True))
        # A result that was found without a live member may arrive late and say more.
        if self.objective is Objective.LEAST and not self.ever_suspected.intersection(self.live()):
            assert set(found) == {expected}


def weather(
    seed: int,
    make: Make,
    *,
    most_members: int = 6,
    objective: Objective = Objective.LEAST,
    codec: Codec | None = None,
    own_suspicion: bool = False,
) -> Swarm:
    """Turmoil, then healing, then a round that must find everything.

    Every other time the rounds of the turmoil must end by themselves before it is triggered.
    """
    swarm = Swarm(
        seed,
        make,
        most_members=most_members,
        objective=objective,
        codec=codec,
        own_suspicion=own_suspicion,
    )
    for _ in range(swarm.draw.randint(0, 200)):
        swarm.misbehave()
    swarm.heal()
    if seed % 2:
        swarm.come_to_rest()
    swarm.trigger_first()
    swarm.come_to_rest()
    swarm.check_found()
    return swarm
