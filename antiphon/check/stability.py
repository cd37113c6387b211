"""Stability: a message is declared stable, or discarded, only once every destination present holds it.

Safe delivery is judged likewise: a site's first delivery of a message is the declaration.

The clocks of different sites prove nothing, so the judgement rests on the logs. At the declaring site the
order of its own rows decides. At another site a reception is too late only if the declaration happened
before it (Lamport 1978): by a chain of rows, each a later row of the same site or a reception of what the
row before sent. Rows of one step are unordered. Destinations with absences, and those whose logs have holes,
are not judged. Messages that no site sent have no destinations.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from antiphon.check import explain
from antiphon.check.deliveries import witness
from antiphon.check.graphs import strong_components
from antiphon.check.history import Action, History, by_step
from antiphon.check.verdict import Violation, Witness
from antiphon.core.ids import MessageId, Site
from antiphon.core.recording import Property

DECLARATIONS: Final[Mapping[Property, frozenset[str]]] = {
    "stability": frozenset({"stable", "discard"}),
    "safe": frozenset({"deliver"}),
}
"""The rows by which a site says that every destination holds a message."""
RECEPTIONS: Final = frozenset({"receive", "deliver"})

Place = tuple[Site, int]
Node = tuple[Site, int, bool]
"""A place of a site's log; or, with True, the moment before all rows of a step and of those after it."""
Receptions = dict[MessageId, dict[Site, list[int]]]
"""Where each site received or delivered each message, in order."""


class Declaration(NamedTuple):
    """The first row in which a site says that every destination holds a message."""

    site: Site
    place: int
    step: int
    kind: str
    message: MessageId


def check_stability(history: History) -> list[Violation]:
    """One violation per (site, message) that was declared too early."""
    return _check(history, "stability")


def check_safe(history: History) -> list[Violation]:
    """One violation per (site, message) that was delivered too early."""
    return _check(history, "safe")


def _check(history: History, name: Property) -> list[Violation]:
    declarations = _declarations(history, DECLARATIONS[name])
    if not declarations:
        return []
    receptions = _receptions(history)
    after = _After(history, receptions)
    judged = (_judge(history, name, declaration, receptions, after) for declaration in declarations)
    return [violation for violation in judged if violation is not None]


def _declarations(history: History, kinds: Collection[str]) -> list[Declaration]:
    first: dict[tuple[Site, MessageId], Declaration] = {}
    for site, log in history.logs.items():
        for place, action in enumerate(log):
            if action.kind in kinds and action.message is not None:
                declaration = Declaration(site, place, action.step, action.kind, action.message)
                first.setdefault((site, action.message), declaration)
    return list(first.values())


def _receptions(history: History) -> Receptions:
    """Where each site holds each message: it receives or delivers it, or is the one that sends it."""
    receptions: Receptions = {}
    for site, log in history.logs.items():
        for place, action in enumerate(log):
            message = action.message
            if message is None:
                continue
            if action.kind in RECEPTIONS or (
                action.kind == "send" and history.is_send(site, action, message)
            ):
                receptions.setdefault(message, {}).setdefault(site, []).append(place)
    return receptions


class _After:
    """What each declaration happened before."""

    def __init__(self, history: History, receptions: Receptions) -> None:
        self._history = history
        graph: dict[Node, list[Node]] = {}
        for site in history.logs:
            self._add_log(graph, site, receptions)
        self._reach: dict[Node, dict[Site, int]] = {}
        for component in strong_components(graph):
            earliest: dict[Site, int] = {}
            for node in component:
                if node[2]:
                    _lower(earliest, {node[0]: node[1]})
                for following in graph.get(node, ()):
                    _lower(earliest, self._reach.get(following, {}))
            for node in component:
                self._reach[node] = earliest

    def _add_log(self, graph: dict[Node, list[Node]], site: Site, receptions: Receptions) -> None:
        """A step's rows come before the next step; a row's actions one after another; a send before its
        receptions elsewhere."""
        place = 0
        steps = by_step(self._history.logs[site])
        for index, rows in enumerate(steps):
            moment = (site, rows[0][0].step, True)
            following: list[Node] = [(site, steps[index + 1][0][0].step, True)] if steps[index + 1 :] else []
            graph[moment] = list(following)
            for row in rows:
                for action in row:
                    node = (site, place, False)
                    graph[moment].append(node)
                    graph[node] = list(following)
                    if action is not row[-1]:
                        graph[node].append((site, place + 1, False))
                    message = action.message
                    if action.kind == "send" and message and self._history.is_send(site, action, message):
                        for other, places in receptions[message].items():
                            graph[node] += [(other, at, False) for at in places if other != site]
                    place += 1

    def contains(self, declaration: Declaration, site: Site, place: int) -> bool:
        """Whether the declaration happened before this place of another site's log."""
        reach = self._reach[declaration.site, declaration.place, False]
        log = self._history.logs[site]
        action = log[place]
        if site in reach and reach[site] <= action.step:
            return True
        for other in range(place, -1, -1):
            if log[other].row != action.row:
                return False
            if self._follows_its_send(reach, site, log[other]):
                return True
        return False

    def _follows_its_send(self, reach: Mapping[Site, int], site: Site, action: Action) -> bool:
        """Whether this action receives what was sent after the declaration, at a third site."""
        sending = None if action.message is None else self._history.sendings.get(action.message)
        if sending is None or sending.site == site or action.kind not in RECEPTIONS:
            return False
        return sending.site in reach and reach[sending.site] <= sending.step


def _lower(earliest: dict[Site, int], other: Mapping[Site, int]) -> None:
    for site, step in other.items():
        if step < earliest.get(site, step + 1):
            earliest[site] = step


def _judge(
    history: History, name: Property, declaration: Declaration, receptions: Receptions, after: _After
) -> Violation | None:
    declared_by, _, step, kind, message = declaration
    received = receptions.get(message, {})
    for site in sorted(history.destinations(message) - history.absentees - history.holed):
        if site not in received:
            story = explain.never_received(declared_by, kind, step, message, site)
            return _violation(history, name, declaration, story, ())
        at = received[site][0]
        received_step = history.logs[site][at].step
        late = received_step > step if site == declared_by else after.contains(declaration, site, at)
        if late:
            story = explain.received_later(declared_by, kind, step, message, site, received_step)
            return _violation(history, name, declaration, story, (witness(site, received_step, message),))
    return None


def _violation(
    history: History, name: Property, declaration: Declaration, story: str, further: tuple[Witness, ...]
) -> Violation:
    site, _, step, _, message = declaration
    rows = (witness(site, step, message), *further)
    return Violation(name, history.run, site, *message, story, rows)
