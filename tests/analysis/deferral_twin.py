"""Confirmations that wait for data to ride on, member by member and message by message: a simple twin.

Nothing here is averaged or assumed independent: members send at random moments, debts are kept for each
pair, and a debt that gets too old becomes a control message.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from antiphon.analysis.control_schemes import Traffic

News = Callable[[float], None]
"""What happens when something that was owed arrives."""


@dataclass
class Twin:
    """A group under D1 or C1, from an empty start."""

    traffic: Traffic
    scheme: str
    random: Random
    controls: int = 0
    sent: int = 0
    delays: list[float] = field(default_factory=list)
    _events: list[tuple[float, int, News]] = field(default_factory=list)
    _serial: int = 0
    _owed: dict[tuple[int, int], tuple[float, list[News]]] = field(default_factory=dict)

    def run(self, units: float) -> None:
        for member in range(self.traffic.members):
            # Members that send evenly do so out of step with one another.
            first = self._gap() * self.random.random()
            self._at(first, lambda now, member=member: self._send(now, member))  # type: ignore[misc]
        while self._events and self._events[0][0] < units:
            now, _, happens = heapq.heappop(self._events)
            happens(now)

    def _gap(self) -> float:
        if self.traffic.sending == "random":
            return self.random.expovariate(self.traffic.rate)
        return 1.0 / self.traffic.rate

    def _at(self, time: float, happens: News) -> None:
        self._serial += 1
        heapq.heappush(self._events, (time, self._serial, happens))

    def _send(self, now: float, member: int) -> None:
        self.sent += 1
        self._at(now + self._gap(), lambda later: self._send(later, member))
        others = [other for other in range(self.traffic.members) if other != member]
        targets = self.random.sample(others, self.traffic.destinations)
        for target in targets:
            self._settle(now, member, target)
        if self.scheme == "D1":
            for other in set(others) - set(targets):
                self._owe(now, member, other, lambda _: None)
        arrived = self._distributed if self.scheme == "D1" else self._centralised
        self._at(now + self.traffic.round_units, arrived(now, member, targets))

    def _settle(self, now: float, member: int, other: int) -> None:
        """Something goes from one to the other, and whatever is owed goes with it."""
        _, riding = self._owed.pop((member, other), (now, []))
        for news in riding:
            self._at(now + self.traffic.round_units, news)

    def _owe(self, now: float, member: int, other: int, news: News) -> None:
        if (member, other) in self._owed:
            self._owed[member, other][1].append(news)
            return
        self._owed[member, other] = (now, [news])
        self._at(now + self.traffic.deferral, lambda later: self._run_out(later, member, other, now))

    def _run_out(self, now: float, member: int, other: int, since: float) -> None:
        if self._owed.get((member, other), (None,))[0] == since:
            self.controls += 1
            self._settle(now, member, other)

    def _distributed(self, sent: float, sender: int, targets: list[int]) -> News:
        left = dict.fromkeys(targets, len(targets) - 1)

        def confirmed(now: float, target: int) -> None:
            left[target] -= 1
            if not left[target]:
                self.delays.append(now - sent)

        def arrived(now: float) -> None:
            for target in targets:
                self._owe(now, target, sender, lambda _: None)
                for other in targets:
                    if other != target:
                        self._owe(now, target, other, lambda then, other=other: confirmed(then, other))  # type: ignore[misc]

        return arrived

    def _centralised(self, sent: float, sender: int, targets: list[int]) -> News:
        left = set(targets)

        def answered(now: float, target: int) -> None:
            left.discard(target)
            if not left:
                for other in targets:
                    self._owe(now, sender, other, lambda then: self.delays.append(then - sent))

        def arrived(now: float) -> None:
            for target in targets:
                self._owe(now, target, sender, lambda then, target=target: answered(then, target))  # type: ignore[misc]

        return arrived
