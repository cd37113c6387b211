"""A stage: a small group on a network on which things go wrong, simulated or real, behind one interface.

A test's body is written once and played on both. On the simulated stage the simulator drives the protocol
objects that a live member would have; on the real one they are `antiphon node` processes on hosts of their
own. That the same bodies pass on both is what makes the simulator a fake that can be trusted.

Messages are told apart by labels, `SITE/COUNT`, with which their bodies begin; what a site has delivered is
a list of labels, over all its lives.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from antiphon.core.ids import Site, site_names
from antiphon.trace.files import read_trace
from antiphon.trace.schema import Event
from tests.live.weather import Weather
from tests.promises import broken_promises

DEADLINE_S: Final = 120.0
"""How long a stage may take to do what is awaited; far more than it ever should."""
ROUND_S: Final = 3.0
"""How long a round of closing messages may take before another is sent."""
SIZE: Final = 200
GROWTH_BYTES: Final = 50 << 20
"""What a process may have more than before once the trouble is over: the total order alone keeps 33 MB."""


class Stage(ABC):
    """A group of members named s0, s1, …; the first is the sequencer where there is one."""

    def __init__(self, members: int, order: str, weather: Weather) -> None:
        self.sites: Final[tuple[Site, ...]] = tuple(site_names(members))
        self.order: Final = order
        self.weather: Final = weather
        self.delivered: Final[dict[Site, list[str]]] = {site: [] for site in self.sites}
        self.missed: Final[set[Site]] = set()
        """The members that reported, or showed by dying, that they may have missed something."""
        self.gone: Final[set[Site]] = set()
        """The members that should not take part now."""
        self._sent = dict.fromkeys(self.sites, 0)
        self.closing = 1
        """Closing messages of each member."""

    # What a test does

    def send(self, site: Site, count: int = 1, size: int = SIZE) -> list[str]:
        """The application of a site hands messages in; answers their labels."""
        begin = self._sent[site]
        self._sent[site] += count
        labels = [f"{site}/{number}" for number in range(begin, begin + count)]
        self._hand_in(site, [label.ljust(size, ".").encode() for label in labels])
        return labels

    def send_all(self, count: int, sites: Iterable[Site] | None = None) -> list[str]:
        """Several sites, or all that take part, hand in that many messages each."""
        senders = self.present() if sites is None else sites
        return [label for site in senders for label in self.send(site, count)]

    def present(self) -> list[Site]:
        """The members that should take part now."""
        return [site for site in self.sites if site not in self.gone]

    def trouble(self, **kinds: float) -> None:
        """Let the network do this from now on (see `Weather.trouble`)."""
        self.weather.trouble(**kinds)

    def partition(self, *cells: Iterable[Site]) -> None:
        """Cut the cells off from each other."""
        self.weather.split([[self.sites.index(site) for site in cell] for cell in cells])

    def heal(self) -> None:
        """The network is as good as new."""
        self.weather.heal()

    def has(self, site: Site, labels: Iterable[str]) -> bool:
        """Whether a site has delivered all of these."""
        return set(labels) <= set(self.delivered[site])

    def until_delivered(self, labels: Sequence[str], sites: Iterable[Site] | None = None) -> None:
        """Wait until these sites, or all that take part and never missed anything, have delivered them.

        A site that reports meanwhile that it may have missed something need not, and the others need not have
        what it sent: on a busy machine members exclude one that is given no time.
        """
        awaited = None if sites is None else list(sites)
        before = set(self.missed)
        told = set() if awaited is None else before

        def done() -> bool:
            excused = self.missed - told
            due = [label for label in labels if label.partition("/")[0] not in self.missed - before]
            return all(
                self.has(site, due)
                for site in (self.present() if awaited is None else awaited)
                if site not in excused
            )

        self.until(done, "the messages to be delivered")

    def until(self, condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
        """Let things happen until a condition holds; fails the test when it does not in the end."""
        if not self.wait(condition, deadline_s):
            raise AssertionError(f"Waited {deadline_s:g} s in vain for {what}.\n{self.describe()}")

    def close(self) -> None:
        """All is healed: every member that takes part must deliver the closing messages of all of them.

        A member that was excluded may come back in the middle of a round; then another round follows.
        """
        for _ in range(int(DEADLINE_S / ROUND_S)):
            labels = self.send_all(self.closing)
            present = self.present()
            if self.wait(lambda: all(self.has(site, labels) for site in present), ROUND_S):  # noqa: B023
                return
        raise AssertionError(f"The group does not come together again.\n{self.describe()}")

    def describe(self) -> str:
        """The state of every member, for the report of a failed test."""
        lines = []
        for site in self.sites:
            counts = {
                sender: sum(label.startswith(f"{sender}/") for label in self.delivered[site])
                for sender in self.sites
            }
            words = [word for word, group in (("gone", self.gone), ("missed", self.missed)) if site in group]
            lines.append(f"  {site} sent {self._sent[site]}, delivered {counts} {' '.join(words)}")
        return "\n".join(lines)

    # What the two stages do in their own ways

    @abstractmethod
    def wait(self, condition: Callable[[], bool], deadline_s: float) -> bool:
        """Let things happen until a condition holds or the time is over; whether it holds."""

    @abstractmethod
    def kill(self, site: Site) -> None:
        """The member loses everything but its trace, without a word."""

    @abstractmethod
    def leave(self, site: Site) -> None:
        """The member says good-bye."""

    @abstractmethod
    def restart(self, site: Site) -> None:
        """A member that was killed or has left begins anew under its name; waits until it takes part."""

    @abstractmethod
    def stop(self, site: Site) -> None:
        """The member does nothing at all from now on; what reaches it piles up in its socket."""

    @abstractmethod
    def proceed(self, site: Site) -> None:
        """A stopped member goes on as if nothing had happened."""

    @abstractmethod
    def stop_reading(self, site: Site) -> None:
        """From now on the member's deliveries are not read."""

    @abstractmethod
    def read_again(self, site: Site) -> None:
        """The application takes what has piled up, and all that follows."""

    @abstractmethod
    def memory(self) -> dict[Site, int]:
        """The bytes that each member's process occupies; nothing where members have no processes."""

    @abstractmethod
    def finish(self) -> Path:
        """Every member present leaves; returns the folder of the whole trace."""

    @abstractmethod
    def _hand_in(self, site: Site, bodies: Sequence[bytes]) -> None: ...


def conclude(stage: Stage, before: dict[Site, int]) -> None:
    """The trouble is over: progress, memory as before, and a trace in which every promise was kept."""
    stage.heal()
    stage.close()
    for site, occupied in stage.memory().items():
        grown = occupied - before[site]
        assert grown < GROWTH_BYTES, f"{site} has grown by {grown >> 20} MB"
    stayed = stage.present()
    trace = read_trace(stage.finish())
    (run,) = trace.runs
    assert run.promises, "the trace does not say what was promised"
    assert {event.site for event in trace.events} == set(stage.sites)
    for events in (trace.events, without_farewells(trace.events, stayed)):
        broken = broken_promises(run.promises, events, run)
        assert not broken, f"{len(broken)} promises were broken, first: {broken[0].explanation}"


def without_farewells(events: Sequence[Event], sites: Iterable[Site]) -> list[Event]:
    """The trace as if these sites had not left in the end.

    A site that has ever been absent is owed less by the others, and every live log ends with an absence. But
    no member sends anything after the closing round, so a member of that round can have missed nothing by
    leaving: without that last row it is judged as present all through, if it was.
    """
    last = {event.site: event.step for event in sorted(events, key=lambda event: event.step)}
    farewells = {(site, last[site]) for site in sites}
    return [
        event for event in events if not (event.kind == "absent" and (event.site, event.step) in farewells)
    ]
