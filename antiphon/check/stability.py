"""Stability: a message is declared stable, or discarded, only once every destination present holds it.

The clocks of different sites prove nothing, so the judgement rests on the logs. At the declaring site the
order of its own rows decides. At another site a reception is too late only if the declaration happened
before it (Lamport 1978): by a chain of rows, each a later row of the same site or a reception of what the
row before sent. Destinations with absences are not judged. Messages that no site sent have no destinations.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from antiphon.check import explain
from antiphon.check.deliveries import witness
from antiphon.check.graphs import strong_components
from antiphon.check.history import History
from antiphon.check.verdict import Violation, Witness
from antiphon.core.ids import MessageId, Site

DECLARATIONS: Final = frozenset({"stable", "discard"})
RECEPTIONS: Final = frozenset({"receive", "deliver"})

Place = tuple[Site, int]
Receptions = dict[MessageId, dict[Site, int]]


class Declaration(NamedTuple):
    """The first row in which a site says that a message is stable, or discards it."""

    site: Site
    place: int
    step: int
    kind: str
    message: MessageId


def check_stability(history: History) -> list[Violation]:
    """One violation per (site, message) that was declared too early."""
    declarations = _declarations(history)
    if not declarations:
        return []
    receptions = _first_receptions(history)
    reach = _reach(history, receptions)
    judged = (_judge(history, declaration, receptions, reach) for declaration in declarations)
    return [violation for violation in judged if violation is not None]


def _declarations(history: History) -> list[Declaration]:
    first: dict[tuple[Site, MessageId], Declaration] = {}
    for site, log in history.logs.items():
        for place, (step, kind, message) in enumerate(log):
            if kind in DECLARATIONS and message is not None:
                first.setdefault((site, message), Declaration(site, place, step, kind, message))
    return list(first.values())


def _first_receptions(history: History) -> Receptions:
    """Where each site first received or delivered each message; its sender holds it by sending it."""
    receptions: Receptions = {}
    for site, log in history.logs.items():
        for place, (_, kind, message) in enumerate(log):
            if message is None:
                continue
            if kind in RECEPTIONS or (kind == "send" and history.is_send(site, place, message)):
                receptions.setdefault(message, {}).setdefault(site, place)
    return receptions


def _reach(history: History, receptions: Receptions) -> Mapping[Place, Mapping[Site, int]]:
    """For each row, the earliest row of each site that is it or that it happened before."""
    graph: dict[Place, list[Place]] = {}
    for site, log in history.logs.items():
        for place, (_, kind, message) in enumerate(log):
            after: list[Place] = [] if place + 1 == len(log) else [(site, place + 1)]
            if kind == "send" and message is not None and history.is_send(site, place, message):
                after += [(other, at) for other, at in receptions[message].items() if other != site]
            graph[site, place] = after
    reach: dict[Place, dict[Site, int]] = {}
    for component in strong_components(graph):
        earliest: dict[Site, int] = {}
        for node in component:
            _lower(earliest, {node[0]: node[1]})
            for after_node in graph[node]:
                _lower(earliest, reach.get(after_node, {}))
        for node in component:
            reach[node] = earliest
    return reach


def _lower(earliest: dict[Site, int], other: Mapping[Site, int]) -> None:
    for site, place in other.items():
        if place < earliest.get(site, place + 1):
            earliest[site] = place


def _judge(
    history: History,
    declaration: Declaration,
    receptions: Receptions,
    reach: Mapping[Place, Mapping[Site, int]],
) -> Violation | None:
    declared_by, place, step, kind, message = declaration
    received = receptions.get(message, {})
    after = {**reach[declared_by, place], declared_by: place}
    for site in sorted(history.destinations(message) - history.absentees):
        at = received.get(site)
        if at is None:
            story = explain.never_received(declared_by, kind, step, message, site)
            return _violation(history, declaration, story, ())
        if after.get(site, at + 1) <= at:
            received_step = history.logs[site][at].step
            story = explain.received_later(declared_by, kind, step, message, site, received_step)
            return _violation(history, declaration, story, (witness(site, received_step, message),))
    return None


def _violation(
    history: History, declaration: Declaration, story: str, further: tuple[Witness, ...]
) -> Violation:
    site, _, step, _, message = declaration
    rows = (witness(site, step, message), *further)
    return Violation("stability", history.run, site, *message, story, rows)
