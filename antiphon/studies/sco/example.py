"""Figure 4: the worked example of section 3.3, also with a1 lost. Claim S2.

The figure is lost from our copy, but the text has all it needs: c1 and a1 are concurrent, a1 precedes c2 and
b2, d1 follows c1 and a1 and is concurrent with c2, c2 precedes a2 and b2, and E4 gets all of them but b1.
Each message is sent once its sender has accepted those that it follows. Channels deliver in an order drawn
from the seed. E4 delivers at causal acceptance, so its deliveries are its causality queue.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Annotated, Final

from antiphon.core.effects import Deliver, Effect, Multicast, Send, SetTimer
from antiphon.core.ids import Site
from antiphon.core.inputs import Admit, Input, Received, Start, TimerFired
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.sco import Sco, ScoConfiguration
from antiphon.protocols.sco.pdus import Data
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.studies.judging import judged_by, runs, total, unless
from antiphon.studies.model import Finding, Section, Table
from antiphon.studies.results import Results
from antiphon.studies.study import Grid

NAME: Final = "antiphon.studies.sco.example:SCENARIO"
SITES: Final = ("E1", "E2", "E3", "E4")
WATCHED: Final = "E4"
STATED: Final = ("c1 a1 c2 d1", "a1 c1 c2 d1", "a1 c1 d1 c2", "c1 a1 d1 c2")
"""The text's four orders."""
SENDS: Final[tuple[tuple[str, frozenset[Site], frozenset[str]], ...]] = (
    ("b1", frozenset({"E3"}), frozenset()),
    ("c1", frozenset({"E4"}), frozenset()),
    ("a1", frozenset({"E2", "E3", "E4"}), frozenset()),
    ("c2", frozenset({"E1", "E2", "E4"}), frozenset({"a1"})),
    ("d1", frozenset({"E3", "E4"}), frozenset({"c1", "a1"})),
    ("a2", frozenset({"E4"}), frozenset({"c2"})),
    ("b2", frozenset({"E4"}), frozenset({"a1", "c2"})),
)
"""Each message, its destinations, and what its sender must have received before it sends it."""
PRECEDING: Final[dict[str, frozenset[str]]] = {
    "c2": frozenset({"c1", "a1"}),
    "d1": frozenset({"c1", "a1"}),
    "a2": frozenset({"a1", "c1", "c2"}),
    "b2": frozenset({"a1", "c1", "c2"}),
}
"""The pairs that E4 must deliver in order."""
LOST: Final = "a1"
STEP_NS: Final = MILLISECOND_NS
MOST_STEPS: Final = 2000


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The example."""

    lost: Annotated[bool, "whether E4 loses a1 at first"] = False


class Stage:
    """Four members, a channel between each two, and a clock that is moved by hand."""

    def __init__(self, random: Random) -> None:
        knobs = ScoConfiguration(delivery="causal", vectors="plain", silence_ns=10_000 * MILLISECOND_NS)
        self.now: Nanoseconds = 0
        self.delivered: list[str] = []
        self.received: dict[Site, set[str]] = {site: set() for site in SITES}
        self._random = random
        self._members = {site: Sco(site, SITES, knobs, Random(place)) for place, site in enumerate(SITES)}
        self._channels: dict[tuple[Site, Site], deque[Pdu]] = {}
        self._timers: dict[tuple[Site, str], Nanoseconds] = {}
        for site in SITES:
            self.give(site, Start())

    def give(self, site: Site, event: Input) -> None:
        self._carry_out(site, self._members[site].handle(self.now, event))

    def _carry_out(self, site: Site, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Multicast(pdu=pdu, to=to):
                    for target in SITES if to is None else to:
                        self._put(site, target, pdu)
                case Send(to=target, pdu=pdu):
                    self._put(site, target, pdu)
                case SetTimer(name=name, after_ns=after_ns):
                    self._timers[site, name] = self.now + after_ns
                case Deliver(bodies=bodies) if site == WATCHED:
                    self.delivered += [bytes(body).decode() for body in bodies]

    def _put(self, source: Site, target: Site, pdu: Pdu) -> None:
        if source != target:
            self._channels.setdefault((source, target), deque()).append(pdu)

    def lose(self, source: Site, target: Site) -> None:
        """The last message sent there is lost."""
        self._channels[source, target].pop()

    def move(self, *, held_back: Iterable[tuple[Site, Site]] = ()) -> None:
        """A message arrives, or time advances to the next timer."""
        kept = set(held_back)
        ready = [pair for pair, channel in self._channels.items() if channel and pair not in kept]
        if not ready:
            self._pass_time()
            return
        source, target = self._random.choice(ready)
        pdu = self._channels[source, target].popleft()
        if isinstance(pdu, Data):
            self.received[target].update(bytes(body).decode() for body in pdu.bodies)
        self.give(target, Received(source, pdu))

    def _pass_time(self) -> None:
        (site, name), due_ns = min(self._timers.items(), key=lambda timer: timer[1])
        del self._timers[site, name]
        self.now = max(self.now, due_ns)
        self.give(site, TimerFired(name))


# The script


def sender_of(message: str) -> Site:
    """The sender: a1 is E1's, and so on."""
    return SITES["abcd".index(message[0])]


def needed(message: str, lost: bool) -> frozenset[str]:
    """A member that lost a1 cannot wait for it."""
    needs = {name: needs for name, _, needs in SENDS}[message]
    return needs - {LOST} if lost and sender_of(message) == WATCHED else needs


def held_back(stage: Stage, unsent: Iterable[str]) -> list[tuple[Site, Site]]:
    """c2 and d1 are concurrent: neither arrives at the other's sender before that has sent its own."""
    kept = [("E4", "E3")] if "c2" in unsent else []
    return [*kept, ("E3", "E4")] if "d1" in unsent and "c1" in stage.received["E4"] else kept


def play(random: Random, lost: bool) -> list[str]:
    """Run the example; E4's deliveries in order."""
    stage = Stage(random)
    unsent = {name: destinations for name, destinations, _ in SENDS}
    wanted = sum(WATCHED in destinations for destinations in unsent.values())
    for _ in range(MOST_STEPS):
        for name in [name for name in unsent if needed(name, lost) <= stage.received[sender_of(name)]]:
            # A sender's own messages follow one another.
            if name[1] == "1" or f"{name[0]}1" not in unsent:
                stage.give(sender_of(name), Admit([name.encode()], unsent.pop(name)))
                if lost and name == LOST:
                    stage.lose("E1", WATCHED)
        if len(stage.delivered) == wanted:
            break
        stage.move(held_back=held_back(stage, unsent))
    return stage.delivered


def is_causal(order: list[str], lost: bool) -> bool:
    """Whether every message came after all its predecessors."""
    places = {name: place for place, name in enumerate(order)}
    wanted = {name for name, destinations, _ in SENDS if WATCHED in destinations}
    if places.keys() != wanted:
        return False
    return all(
        places[before] < places[name]
        for name, preceding in PRECEDING.items()
        for before in (preceding - {LOST} if lost and sender_of(name) == WATCHED else preceding)
    )


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:  # noqa: ARG001
    order = play(Seeds(seed).stream("example"), configuration.lost)
    four = " ".join(name for name in order if name in STATED[0].split())
    return {
        "finished": len(order) == 6,
        "causal": is_causal(order, configuration.lost),
        "stated": four in STATED,
        **{f"order_{place}": four == stated for place, stated in enumerate(STATED)},
    }


SCENARIO: Final = Scenario(
    name=NAME,
    summary="Figure 4 of the SCO paper: seven messages among four members.",
    example=f"antiphon simulate {NAME} --lost --seed 1",
    configuration=Configuration,
    run=run,
    promises=(),
    cost_s=lambda _: 0.01,
)

GRID: Final = Grid(scenario=NAME, axes={"lost": (False, True)}, seeds={"quick": 20, "full": 200})


# Claims


def one_of_four(results: Results) -> Finding:
    points = results.found({"scenario": NAME, "lost": False})
    made = runs(points)
    good = min(total(points, "stated"), total(points, "causal"))
    return Finding(ours=f"{good:.0f} of {made} runs", holds=good == made)


def same_after_loss(results: Results) -> Finding:
    points = results.found({"scenario": NAME, "lost": True})
    made, causal, stated = runs(points), total(points, "causal"), total(points, "stated")
    return Finding(
        ours=f"{causal:.0f} of {made} runs deliver all in causal order, {stated:.0f} in one of the four",
        holds=causal == made,
        reason=unless(stated == made, "E4 sends d1 before it has a1 again, so that d1 need not follow it."),
    )


def order_rows(results: Results) -> list[list[str]]:
    rows = []
    for lost, words in ((False, "nothing lost"), (True, "a1 lost")):
        points = results.found({"scenario": NAME, "lost": lost})
        counts = [total(points, f"order_{place}") for place in range(len(STATED))]
        rows.append([words, *(f"{count:.0f}" for count in counts), f"{runs(points) - sum(counts):.0f}"])
    return rows


SECTION: Final = Section(
    title="3.3 Causal acceptance: the example of figure 4",
    text="Four members and seven messages, sent as the paper describes; channels deliver them in random "
    "order.",
    tables=(
        Table(
            title="E4's causality queue",
            caption="The order of a1, c1, c2 and d1, and the number of runs with it.",
            columns=("", *STATED, "another"),
            compute=order_rows,
        ),
    ),
    claims=judged_by(
        "sco",
        S2a=one_of_four,
        S2b=same_after_loss,
    ),
)
