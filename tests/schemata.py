"""All mutants in one loaded tree, of which a switch chooses one: nothing is loaded twice for them.

A place that mutants would change becomes `(size <= 10 if switch.at((7,)) else size < 10)`. After pytest has
collected the tests it is forked for each mutant, and the fork runs the tests that reach the place, the
quickest first: the others cannot notice it. A first fork without a mutant finds out which tests those are.

A place that is reached while modules are loaded, such as a bound of a field, cannot be switched afterwards.

Time is a process's own: what it spends ready to run, waiting for a processor, does not count. So beside other
work a mutant is not ended before its tests have had their time.
"""

import ast
import copy
import importlib
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

SWITCH: Final = "mutants_switch"
"""The module that the changed tree imports; it also works in processes that tests start."""
CHOSEN: Final = "ANTIPHON_MUTANT"
SWITCH_SOURCE: Final = f"""
import os

reached = set()
chosen = os.environ.get({CHOSEN!r})


def at(places):
    if chosen is None:
        reached.update(places)
        return False
    return chosen in places
"""
SLACK: Final = 5.0
"""A mutant's tests may take this many times as long as those of the tree before they are ended."""

SHORTEST_PAUSE_S: Final = 0.005
LONGEST_PAUSE_S: Final = 0.1
"""A fork is looked at as often. Raising it costs time after each mutant, lowering it processor time."""

FATES: Final = {0: "survived", -signal.SIGALRM: "timeout"}
"""What became of a fork, by its exit code; all others have failed."""

Change = Callable[[Any], None]


# The tree


def with_switches(source: ast.Module, changes: Mapping[int, Sequence[tuple[str, Change]]]) -> str:
    """The source with all mutants; `changes` has those of each expression, by its identity."""
    tree = _Switching(changes).visit(source)
    begin = 0 if ast.get_docstring(tree) is None else 1
    while isinstance(first := tree.body[begin], ast.ImportFrom) and first.module == "__future__":
        begin += 1
    tree.body.insert(begin, ast.Import([ast.alias(SWITCH)]))
    return ast.unparse(ast.fix_missing_locations(tree))


class _Switching(ast.NodeTransformer):
    def __init__(self, changes: Mapping[int, Sequence[tuple[str, Change]]]) -> None:
        self._changes = changes

    def visit(self, node: ast.AST) -> Any:
        changes = self._changes.get(id(node), ())
        changed = []
        for place, change in changes:
            other = copy.deepcopy(node)
            change(other)
            changed.append((place, other))
        self.generic_visit(node)
        if not changed:
            return node
        _, chain = changed.pop()
        for place, other in reversed(changed):
            chain = ast.IfExp(ast.parse(f"{SWITCH}.chosen == {place!r}", mode="eval").body, other, chain)  # type: ignore[arg-type]
        places = tuple(place for place, _ in changes)
        return ast.IfExp(ast.parse(f"{SWITCH}.at({places!r})", mode="eval").body, chain, node)  # type: ignore[arg-type]


# The tests


@dataclass
class Reached:
    """What a run without mutants has shown."""

    seconds: dict[str, float] = field(default_factory=dict)
    """How long each test took, in its own time."""
    by_test: dict[str, list[str]] = field(default_factory=dict)
    """The places that each test reached."""
    at_loading: list[str] = field(default_factory=list)

    def tests_of(self, place: str) -> list[str]:
        """The tests that reach a place, the quickest first."""
        is_everywhere = place in self.at_loading
        tests = [test for test, places in self.by_test.items() if is_everywhere or place in places]
        return sorted(tests, key=lambda test: self.seconds[test])

    def limit_s(self, tests: Sequence[str], slack_s: float) -> float:
        """How long they may take with a mutant."""
        return SLACK * sum(self.seconds[test] for test in tests) + slack_s


def own_s(process: int) -> float:
    """The time on a clock that stands while a process waits for a processor, where the system tells that."""
    try:
        waited_ns = int(Path(f"/proc/{process}/schedstat").read_text().split()[1])
    except OSError:
        waited_ns = 0
    return time.monotonic() - waited_ns / 1e9


def wait_for(child: int, limit_s: float) -> tuple[str, float]:
    """What became of a fork at the head of its own group, and after which time of its own."""
    begin_s, pause_s = own_s(child), SHORTEST_PAUSE_S
    spent_s = 0.0
    while spent_s < limit_s:
        spent_s = own_s(child) - begin_s
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return FATES.get(os.waitstatus_to_exitcode(status), "failed"), spent_s
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout", spent_s


def end_after(limit_s: float) -> None:
    """End this process by SIGALRM when it has had so much time of its own."""
    until_s = own_s(os.getpid()) + limit_s

    def look(*_: object) -> None:
        left_s = until_s - own_s(os.getpid())
        if left_s <= 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGALRM)
        signal.setitimer(signal.ITIMER_REAL, max(left_s, SHORTEST_PAUSE_S))

    signal.signal(signal.SIGALRM, look)
    look()


class Switching:
    """A pytest plugin that tries these places, and tells what came of each, a line of JSON each.

    The first line has what the run without a mutant has shown, or None if it failed.
    """

    def __init__(
        self, places: Sequence[str], found: Path, told: int, slack_s: float, longest_s: float
    ) -> None:
        self._places = places
        self._found = found
        self._told = told
        self._slack_s = slack_s
        self._longest_s = longest_s

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        switch = importlib.import_module(SWITCH)
        at_loading = sorted(switch.reached)
        fate, _ = self._fork(lambda: self._measure(session, at_loading), self._longest_s)
        if fate != "survived":
            self._tell(None)
            return True
        shown = json.loads(self._found.read_text())
        self._tell(shown)
        reached = Reached(*shown)
        items = {item.nodeid: item for item in session.items}
        for place in self._places:
            if place not in reached.at_loading:
                tests = reached.tests_of(place)
                chosen = [items[test] for test in tests]
                limits = [reached.limit_s([test], self._slack_s) for test in tests]
                fate, seconds = self._fork(
                    lambda place=place, chosen=chosen, limits=limits: self._try(  # type: ignore[misc]
                        session, place, chosen, limits
                    ),
                    reached.limit_s(tests, self._slack_s),
                )  # fmt: skip
                self._tell([place, fate, seconds])
        return True

    def _tell(self, row: object) -> None:
        os.write(self._told, json.dumps(row).encode() + b"\n")

    def _fork(self, act: Callable[[], int], limit_s: float) -> tuple[str, float]:
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            try:
                os._exit(act())
            except BaseException:
                os._exit(1)
        return wait_for(child, limit_s)

    def _measure(self, session: pytest.Session, at_loading: list[str]) -> int:
        switch = importlib.import_module(SWITCH)
        found = Reached(at_loading=at_loading)
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            switch.reached.clear()
            begin_s = own_s(os.getpid())
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                return 1
            found.seconds[item.nodeid] = own_s(os.getpid()) - begin_s
            found.by_test[item.nodeid] = sorted(switch.reached)
        self._found.write_text(json.dumps([found.seconds, found.by_test, found.at_loading]))
        return 0

    def _try(
        self, session: pytest.Session, place: str, items: list[pytest.Item], limits_s: list[float]
    ) -> int:
        importlib.import_module(SWITCH).chosen = os.environ[CHOSEN] = place  # type: ignore[attr-defined]
        for item, following, limit_s in zip(items, [*items[1:], None], limits_s, strict=True):
            end_after(limit_s)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                return 1
        return 0


class Selecting:
    """A pytest plugin for a mutant that is loaded by itself: these tests alone, in this order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._turn = {test: turn for turn, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._turn), key=lambda item: self._turn[item.nodeid]
        )
