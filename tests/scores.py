"""How often the campaign catches what is wrong on purpose: mutation scores of SCO's rules.

    python -m tests.scores --runs 200

Each fault of the printed procedure is a switch of its literal twin. Each of our own rules is switched off in
the product. Every run is judged by all of SCO's promises; a run that does not finish is caught, too. The
table says in how many runs each fault was caught, and by what.
"""

import argparse
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from unittest import mock

from antiphon.protocols.sco import PROMISES, Sco
from antiphon.protocols.sco.gathering import Gathering
from antiphon.protocols.sco.lives import Lives
from antiphon.protocols.sco.ordering import Ordering
from antiphon.protocols.sco.pdus import Answer, Query
from antiphon.protocols.sco.peer import Batch, Peer
from antiphon.protocols.sco.recovery import Recovery
from antiphon.protocols.sco.stamps import Stamps
from antiphon.protocols.sco.state import Presence
from tests.protocols.harness.sco_printed import FAULTS, printed
from tests.protocols.harness.sco_swarm import Build, Case, Drive, draw_case, draw_faults

BLOCKS: Final = "does not finish"
ORDERS: Final = ("causal", "causal-receipt")


def steady(seed: int) -> Case:
    """A group whose members stay, without messages to oneself: what the literal twin knows."""
    case = draw_case(seed)
    case.batch, case.to_self, case.patience_ms = 1, False, 1500.0
    case.knobs = {"window": 4, "control_ns": 10_000_000, "repair_ns": 4_000_000}
    return case


def troubled(seed: int) -> Case:
    """Members that crash, leave and are split."""
    case = draw_faults(seed)
    case.partitions = 2
    return case


def _follow_sender_only(self: Stamps, batch: Batch) -> None:
    if batch.end > self.csn.get(batch.sender, 0):
        self._raise(batch.sender, batch.end)


def _follow_nothing(_self: Stamps, _batch: Batch) -> None:
    pass


def _frontier_only(self: Ordering, _batch: Batch, peer: Peer, number: int) -> bool:
    return peer.stream.frontier < number


def _queues_only(_self: Ordering, _batch: Batch, peer: Peer, number: int) -> bool:
    queue = peer.stream.queue
    return bool(queue) and queue[0].number < number


_accept_causally = Ordering._accept_causally


def _follow_when_moved(self: Ordering, now: int, batch: Batch) -> None:
    """Follow a batch when it moves on, not when it is received."""
    STAMPS_FOLLOW(self._stamps, batch)
    _accept_causally(self, now, batch)


def _claim_all(self: Ordering, now: int) -> None:
    """Tell that all destinations hold whatever was sent."""
    SETTLE_OWN(self, now)
    self._peers.me.stream.atomic = self._peers.next_number


def _answer_always(self: Gathering, peer: Peer, pdu: Query) -> None:
    """Say of any message that all of its destinations hold it."""
    if pdu.to == self._peers.me.life:
        self._send(peer.site, Answer(self._peers.me.life, self._state.lives.digest, pdu.of, pdu.end))


def _finish_alone(self: Recovery, now: int) -> None:
    """Complete the streams of departed members without what others hold of them."""
    for peer in self._peers.present.values():
        peer.view.satisfied = self._lives.digest
    FINISH(self, now)


STAMPS_FOLLOW: Final = Stamps.follow
SETTLE_OWN: Final = Ordering._settle_own
FINISH: Final = Recovery.finish
RULES: Final[Mapping[str, tuple[Callable[[int], Case], Mapping[tuple[type, str], Any]]]] = {
    "a batch waits for nothing": (steady, {(Ordering, "_may_move"): lambda *_: True}),
    "a batch waits for frontiers, not for queues": (steady, {(Ordering, "_precedes"): _frontier_only}),
    "a batch waits for queues, not for frontiers": (steady, {(Ordering, "_precedes"): _queues_only}),
    "own batches follow nothing": (steady, {(Stamps, "follow"): _follow_nothing}),
    "own batches follow what was received, and not its past": (
        steady,
        {(Stamps, "follow"): _follow_sender_only},
    ),
    "own batches follow what has moved, not what was received": (
        steady,
        {(Stamps, "follow"): _follow_nothing, (Ordering, "_accept_causally"): _follow_when_moved},
    ),
    "delivery waits for no confirmation": (troubled, {(Ordering, "_is_confirmed"): lambda *_: True}),
    "a minority goes on": (troubled, {(Recovery, "is_minority"): lambda *_: False}),
    "a site's next life waits for nothing": (troubled, {(Peer, "is_alone"): lambda *_: True}),
    "in a large group a sender takes what it has sent for held by all": (
        troubled,
        {(Ordering, "_settle_own"): _claim_all},
    ),
    "a member that is asked says of any message that all have it": (
        troubled,
        {(Gathering, "on_query"): _answer_always},
    ),
    "members with other departed members are believed": (
        troubled,
        {(Lives, "digest"): property(lambda _: 1)},
    ),
    "streams of departed members end without what others hold": (
        troubled,
        {(Recovery, "finish"): _finish_alone},
    ),
    "messages that others have, and a member lacks, end no spell of it": (
        troubled,
        {(Presence, "note_hole"): lambda _: None},
    ),
}
"""Each rule as it reads without it: the runs that it is tried in, and what replaces which method."""


@contextlib.contextmanager
def without(rule: str) -> Iterator[None]:
    """Members that do not keep a rule."""
    with contextlib.ExitStack() as stack:
        for (owner, name), replacement in RULES[rule][1].items():
            stack.enter_context(mock.patch.object(owner, name, replacement))
        yield


def caught(case: Case, seed: int, build: Build = Sco) -> set[str]:
    """What shows that a run is wrong: properties, or that it does not finish."""
    try:
        run = Drive(case, seed, build)
    except (AssertionError, ValueError, IndexError, KeyError):
        return {"an assertion"}
    found: set[str] = {violation.property for violation in run.broken(PROMISES)}
    return found | ({BLOCKS} if run.missing() or run.offered or run.away else set())


def scores(runs: int) -> Iterator[tuple[str, Counter[str]]]:
    """For each fault: in how many runs it was caught at all, and by what."""
    for fault, words in FAULTS.items():
        build = printed(fault)
        yield f"{fault}: {words}", counted(caught(steady(seed), seed, build) for seed in range(runs))
    for rule, (draw, _) in RULES.items():
        with without(rule):
            yield rule, counted(caught(draw(seed), seed) for seed in range(runs))


def counted(found: Iterator[set[str]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for reasons in found:
        counts.update(reasons)
        counts["caught"] += bool(reasons)
    return counts


def cells(counts: Counter[str]) -> list[str]:
    """A fault's row of the table."""
    others = [
        f"{name} {count}" for name, count in sorted(counts.items()) if name not in (*ORDERS, BLOCKS, "caught")
    ]
    shown = (counts["caught"], *(counts[name] for name in ORDERS), ", ".join(others), counts[BLOCKS])
    return [str(cell) for cell in shown]


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutation scores of SCO's rules.")
    parser.add_argument("--runs", type=int, default=200, help="runs for each fault")
    runs = parser.parse_args().runs
    print(f"| fault | caught in {runs} runs | causal | causal-receipt | other properties | {BLOCKS} |")
    print("|---|---|---|---|---|---|")
    for fault, counts in scores(runs):
        print(f"| {fault} | {' | '.join(cells(counts))} |", flush=True)


if __name__ == "__main__":
    main()
