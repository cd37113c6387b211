"""A group of gossiping members driven by hand: a clock, a network that can misbehave, and what must hold."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from antiphon.core.effects import CancelTimer, Effect, Multicast, Send, SetTimer, Stable
from antiphon.core.inputs import Received, Restored, RoundTriggered, Suspected, TimerFired
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.gossip import Gossip
from antiphon.protocols.stability.s_gossip import SGossip

Make = Callable[[str, tuple[str, ...], tuple[str, ...], Random], Gossip | SGossip]


class Group:
    """Members, messages under way and timers; its driver decides what happens next."""

    def __init__(self, sites: Sequence[str], senders: Sequence[str], make: Make, draw: Random) -> None:
        self.draw = draw
        self.sites = tuple(sites)
        self.senders = tuple(senders)
        self.members = {site: make(site, self.sites, self.senders, Random(site)) for site in self.sites}
        self.now = 0
        self.crashed: set[str] = set()
        self.ever_suspected: set[str] = set()
        self.under_way: list[tuple[str, str, Pdu]] = []
        self.timers: dict[tuple[str, str], int] = {}
        self.declared = {site: dict.fromkeys(self.senders, 0) for site in self.sites}
        self.sent = 0

    def live(self) -> list[str]:
        return [site for site in self.sites if site not in self.crashed]

    def give(self, site: str, event: Any) -> None:
        if site in self.crashed:
            return
        before = self.members[site].stable
        for effect in self.members[site].handle(self.now, event):
            self.carry_out(site, effect)
        assert all(now >= then for now, then in zip(self.members[site].stable, before, strict=True))

    def carry_out(self, site: str, effect: Effect) -> None:
        if isinstance(effect, Send):
            assert effect.to != site
            self.sent += 1
            self.under_way.append((site, effect.to, effect.pdu))
        elif isinstance(effect, Multicast):
            others = self.sites if effect.to is None else effect.to
            self.under_way += [(site, other, effect.pdu) for other in others if other != site]
        elif isinstance(effect, SetTimer):
            self.timers[site, effect.name] = self.now + effect.after_ns
        elif isinstance(effect, CancelTimer):
            self.timers.pop((site, effect.name), None)
        elif isinstance(effect, Stable):
            self.check(site, effect)

    def check(self, site: str, news: Stable) -> None:
        """What is declared follows on what was; the member itself and all never suspected hold it."""
        assert news.number == self.declared[site][news.sender]
        self.declared[site][news.sender] += news.count
        place = self.senders.index(news.sender)
        for other in {site, *self.sites} - (self.ever_suspected - {site}):
            assert self.declared[site][news.sender] <= self.members[other].held[place], (site, other)

    def deliver(self) -> None:
        source, target, pdu = self.under_way.pop(self.draw.randrange(len(self.under_way)))
        self.give(target, Received(source, pdu))

    def fire(self, timer: tuple[str, str]) -> None:
        self.now = max(self.now, self.timers.pop(timer))
        self.give(timer[0], TimerFired(timer[1]))

    def fire_next(self) -> None:
        self.fire(min(self.timers, key=lambda timer: (self.timers[timer], timer)))

    def trigger(self, site: str) -> None:
        self.give(site, RoundTriggered())

    def settle(self, events: int = 40_000) -> None:
        """Nothing is lost any more: all that is under way arrives, then time passes, until all is quiet."""
        for _ in range(events):
            if self.under_way:
                self.deliver()
            elif self.timers:
                self.fire_next()
            else:
                assert not any(self.members[site].under_way for site in self.live())
                return
        raise AssertionError("the group does not come to rest")

    def least(self) -> tuple[int, ...]:
        """What all who live hold."""
        return tuple(map(min, zip(*(self.members[site].held for site in self.live()), strict=True)))


class Turmoil(Group):
    """A group on a network that loses, repeats and reorders, with crashes and detectors that err."""

    def misbehave(self) -> None:
        acts = (
            (0.34, self.deliver_one), (0.43, self.lose), (0.50, self.repeat), (0.68, self.some_timer),
            (0.82, self.hold_more), (0.90, self.trigger_someone), (0.93, self.suspect_rightly),
            (0.96, self.suspect_wrongly), (0.98, self.restore), (1.0, self.crash),
        )  # fmt: skip
        step = self.draw.random()
        next(act for limit, act in acts if step < limit)()

    def deliver_one(self) -> None:
        if self.under_way:
            self.deliver()

    def lose(self) -> None:
        if self.under_way:
            self.under_way.pop(self.draw.randrange(len(self.under_way)))

    def repeat(self) -> None:
        if self.under_way:
            self.under_way.append(self.draw.choice(self.under_way))

    def some_timer(self) -> None:
        """Any of them: clocks may go as differently as they like."""
        if self.timers:
            self.fire(self.draw.choice(sorted(self.timers)))

    def hold_more(self) -> None:
        member = self.members[self.draw.choice(self.live())]
        member.hold_all([count + self.draw.randint(0, 3) for count in member.held])

    def trigger_someone(self) -> None:
        self.trigger(self.draw.choice(self.live()))

    def crash(self) -> None:
        if len(self.live()) > 1:
            gone = self.draw.choice(self.live())
            self.crashed.add(gone)
            self.timers = {timer: due for timer, due in self.timers.items() if timer[0] != gone}

    def suspect(self, at: str, site: str) -> None:
        self.ever_suspected.add(site)
        self.give(at, Suspected(site))

    def suspect_rightly(self) -> None:
        if self.crashed:
            self.suspect(self.draw.choice(self.live()), self.draw.choice(sorted(self.crashed)))

    def suspect_wrongly(self) -> None:
        self.suspect(self.draw.choice(self.live()), self.draw.choice(self.live()))

    def restore(self) -> None:
        self.give(self.draw.choice(self.live()), Restored(self.draw.choice(self.sites)))

    def heal(self) -> None:
        """Detectors get it right and all that is under way ends; what is asked for then must be found.

        A round asked for sooner may find less: it may have begun elsewhere before, with what was held then.
        """
        for site in self.live():
            for other in self.sites:
                if other in self.crashed:
                    self.suspect(site, other)
                else:
                    self.give(site, Restored(other))
        self.settle()
        self.trigger(self.draw.choice(self.live()))
        self.settle()


def survive(make: Make, seed: int, most_members: int = 7) -> Turmoil:
    """Turmoil, then peace: safe all the time, and everything stable found at the end."""
    draw = Random(seed)
    sites = [f"s{index}" for index in range(draw.randint(2, most_members))]
    turmoil = Turmoil(sites, sites[: draw.randint(1, len(sites))], make, draw)
    for _ in range(draw.randint(0, 250)):
        turmoil.misbehave()
    turmoil.heal()
    least = turmoil.least()
    for site in turmoil.live():
        stable = turmoil.members[site].stable
        assert all(found >= wanted for found, wanted in zip(stable, least, strict=True)), (seed, site)
        assert stable == least or turmoil.ever_suspected - turmoil.crashed, (seed, site)
        assert turmoil.members[site].ignored == 0
    return turmoil
