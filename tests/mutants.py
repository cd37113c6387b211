"""`python -m tests.mutants`: turns comparisons around, one at a time, and tells which ones no test notices.

    python -m tests.mutants antiphon/protocols/dpg --count 40 --seed 1
    python -m tests.mutants antiphon/protocols/sco --only validation --tests tests/protocols/sco

A mutant is a file with one comparison turned around (`<` to `<=` or `>=`, `in` to `not in`, …), one `and`
made an `or`, or one bound moved by one. It is killed if a test fails or does not end in time, and survives
if all pass: then nothing holds that line. Mutants live in a copy of the tree; the tree itself is never
changed. Each is tested in a fork by the tests that reach the changed place, the quickest first, and without
those marked `slow`; `schemata` says how.

`tests/kept/equivalent_mutants.toml` names changes that change nothing, each with the reason: they are left
out.

The exit code is 0 if none survives, 1 if some do, 2 if the tests fail without any mutant.
"""

import argparse
import ast
import copy
import json
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.reading import READERS, Function, Reading, derived, mentions, reading_of
from tests.schemata import (
    SWITCH,
    SWITCH_SOURCE,
    Reached,
    Selecting,
    Switching,
    wait_for,
    with_switches,
)

ROOT: Final = Path(__file__).parent.parent
COPIED: Final = ("antiphon", "tests", "pyproject.toml", "examples", "docs")
TURNED: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
BOUNDS: Final = frozenset({"ge", "gt", "le", "lt", "min_length", "max_length"})
"""What `msgspec.Meta` calls its bounds."""
TESTS: Final[dict[str, tuple[str, ...]]] = {
    "antiphon/protocols/dpg": ("tests/protocols/dpg",),
    "antiphon/protocols/sco": ("tests/protocols/sco",),
    "antiphon/protocols/fifo": ("tests/protocols/fifo", "tests/protocols/test_links.py"),
    "antiphon/protocols/sequencer": ("tests/protocols/sequencer",),
    "antiphon/protocols/metagroups": ("tests/protocols/metagroups",),
    "antiphon/protocols/quorum": (
        "tests/protocols/quorum", "tests/sim/test_quorum.py", "tests/sim/test_sides.py",
    ),
    "antiphon/protocols/detection": ("tests/protocols/detection",),
    "antiphon/protocols/stability": (
        "tests/protocols/stability", "tests/protocols/fifo/test_stability.py",
        "tests/protocols/fifo/test_ways.py",
    ),
    "antiphon/protocols/rivals": ("tests/protocols/rivals",),
    "antiphon/protocols/links.py": ("tests/protocols/test_links.py",),
    "antiphon/protocols/atomic_delivery.py": ("tests/protocols/test_atomic_delivery.py",),
    "antiphon/protocols/taken.py": ("tests/protocols/test_taken.py",),
    "antiphon/protocols/template.py": ("tests/protocols/test_template.py",),
    "antiphon/live": (
        "tests/live/test_gate.py", "tests/live/test_gate_strangers.py", "tests/live/test_fragments.py",
        "tests/live/test_pieces.py",
        "tests/live/test_transport.py", "tests/live/test_keys.py", "tests/live/test_addresses.py",
        "tests/live/test_history.py", "tests/live/test_metering.py", "tests/live/test_networks.py",
        "tests/live/test_onlooker.py", "tests/live/test_versions.py", "tests/live/test_hosts.py",
        "tests/live/test_met_names.py", "tests/live/test_loss_notice.py", "tests/live/test_congestion.py",
        "tests/live/test_pacing.py", "tests/live/test_journal.py", "tests/live/test_levels.py",
        "tests/live/test_names.py", "tests/live/test_outside.py", "tests/live/test_renewal.py",
        "tests/live/test_rows.py", "tests/live/test_figures.py", "tests/live/test_refusals.py",
        "tests/live/test_leaving.py", "tests/live/test_poison.py", "tests/live/test_stability.py",
        "tests/live/test_sockets.py", "tests/live/test_waits.py",
    ),
    "antiphon": ("tests/{room}",),
}  # fmt: skip
"""The tests of a folder: those of the longest name that its path begins with. `{room}` is its room's name."""
EQUIVALENT: Final = "tests/kept/equivalent_mutants.toml"
"""A list of changes that change nothing, so that no test can notice them."""
LONGEST_S: Final = 1800.0
"""The tests may take as long without a mutant."""
SLACK_S: Final = 3.0
"""Added to that. Raising it costs time for mutants that never end."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    path: str
    line: int
    function: str
    """In which it is; empty if in none."""
    before: str
    after: str
    place: int
    """Which of the file's changes it is."""

    @property
    def change(self) -> tuple[str, str, str, str]:
        """What it is, also when lines have moved."""
        return self.path, self.function, self.before, self.after

    @property
    def key(self) -> str:
        return f"{self.path}:{self.place}"

    def told(self) -> str:
        return f"{self.path}:{self.line}: {self.before}  ->  {self.after}"


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: `failed`, `timeout` or `survived`."""

    mutant: Mutant
    fate: str
    seconds: float


# Making mutants


class Places(ast.NodeVisitor):
    """Collects what can be changed in a module: a node, where it stands, and what to do with it."""

    def __init__(self, path: str, reading: Reading | None) -> None:
        self.found: list[tuple[ast.expr, Callable[[Any], None]]] = []
        self._path = path
        self._reading = reading
        self._is_whole = reading is None or Path(path).name in READERS
        self._handed = frozenset[str]()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def _visit_function(self, node: Function) -> None:
        before = self._is_whole, self._handed
        if self._reading is not None:
            place = self._path, node.lineno
            self._is_whole = self._is_whole or place in self._reading.whole
            self._handed |= derived(node, self._reading.handed.get(place, frozenset()))
        for statement in node.body:  # neither defaults nor annotations
            self.visit(statement)
        self._is_whole, self._handed = before

    def visit_Assert(self, node: ast.Assert) -> None:
        """What must be so anyway decides nothing."""

    def visit_If(self, node: ast.If) -> None:
        told = ast.unparse(node.test)
        if told != "TYPE_CHECKING" and "__name__" not in told:
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if self._is_read(node):
            for place, operator in enumerate(node.ops):
                for other in TURNED[type(operator)]:
                    self.found.append((node, partial(_turn, place=place, other=other)))
            for operand in (node.left, *node.comparators):
                self._move(operand)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        if self._is_read(node):
            self.found.append((node, _swap))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id == "Meta":
            for keyword in node.keywords:
                if keyword.arg in BOUNDS:
                    self._move(keyword.value)
        self.generic_visit(node)

    def _is_read(self, node: ast.expr) -> bool:
        return self._is_whole or mentions(node, self._handed)

    def _move(self, node: ast.expr) -> None:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            for step in (1, -1):
                self.found.append((node, partial(_move, step=step)))


def _turn(node: ast.Compare, place: int, other: type[ast.cmpop]) -> None:
    node.ops = [*node.ops[:place], other(), *node.ops[place + 1 :]]


def _move(node: ast.Constant, step: int) -> None:
    assert isinstance(node.value, int)
    node.value += step


def _swap(node: ast.BoolOp) -> None:
    node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()


def places_of(path: str, tree: ast.Module, reading: Reading | None = None) -> Places:
    """What can be changed in one file, in an order that is always the same: all, or only what reads PDUs."""
    places = Places(path, reading)
    places.visit(tree)
    return places


def mutants_of(path: str, source: str, reading: Reading | None = None) -> Iterator[Mutant]:
    """Every mutant of one file, or only those of what reads PDUs."""
    tree = ast.parse(source)
    around = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    found = places_of(path, tree, reading).found
    every = {
        (id(node), repr(change)): place for place, (node, change) in enumerate(places_of(path, tree).found)
    }
    for node, change in found:
        expression: ast.AST = node
        while not isinstance(expression, (ast.Compare, ast.BoolOp, ast.Call)):
            expression = around[id(expression)]  # a bare number does not tell where it stands
        before, kept = ast.unparse(expression), copy.copy(node)
        change(node)
        after, place = ast.unparse(expression), every[id(node), repr(change)]
        yield Mutant(path, node.lineno, _function_of(node, around), before, after, place)
        node.__dict__.update(kept.__dict__)


def _function_of(node: ast.AST, around: Mapping[int, ast.AST]) -> str:
    while not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        if id(node) not in around:
            return ""
        node = around[id(node)]
    return node.name


def mutated(path: str, source: str, place: int) -> str:
    """The whole file with one change."""
    tree = ast.parse(source)
    node, change = places_of(path, tree).found[place]
    change(node)
    return ast.unparse(tree)


def switched(path: str, source: str, places: Set[int]) -> str:
    """The whole file with all of these changes, of which a switch chooses one."""
    tree = ast.parse(source)
    changes: dict[int, list[tuple[str, Callable[[Any], None]]]] = {}
    found = places_of(path, tree).found
    for place in sorted(places):
        node, change = found[place]
        changes.setdefault(id(node), []).append((f"{path}:{place}", change))
    return with_switches(tree, changes)


def gather(
    root: Path, targets: Iterable[str], *, only_readers: bool, count: int | None, seed: int
) -> list[Mutant]:
    """Mutants of these files and folders, some of them drawn by the seed if there are more than enough."""
    reading = reading_of(root) if only_readers else None
    found: list[Mutant] = []
    for target in targets:
        place = root / target
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            name = str(path.relative_to(root))
            found += mutants_of(name, path.read_text(), reading)
    if count is not None and count < len(found):
        chosen = sorted(Random(seed).sample(range(len(found)), count))
        found = [found[place] for place in chosen]
    return found


def equivalent_of(root: Path) -> list[tuple[str, str, str, str]]:
    """The changes that change nothing: path, function, expression, changed expression."""
    place = root / EQUIVALENT
    rows = tomllib.loads(place.read_text())["mutant"] if place.exists() else []
    return [(row["path"], row["function"], row["before"], row["after"]) for row in rows]


def concerning(root: Path, targets: Iterable[str]) -> list[str]:
    """The tests that concern these files and folders."""
    patterns: dict[str, None] = {}
    for target in targets:
        prefix = max((name for name in TESTS if target.startswith(name)), key=len)
        room = Path(target).parts[1] if len(Path(target).parts) > 1 else ""
        patterns.update(dict.fromkeys(pattern.format(room=room) for pattern in TESTS[prefix]))
    return expand(root, patterns)


def expand(root: Path, patterns: Iterable[str]) -> list[str]:
    found = {str(path.relative_to(root)): None for pattern in patterns for path in sorted(root.glob(pattern))}
    return list(found)


# Trying them


class Workshop:
    """A copy of the tree in which files are others for a while."""

    def __init__(self, root: Path, folder: Path, arguments: Sequence[str], slack_s: float) -> None:
        self._folder = folder
        self._arguments = list(arguments)
        self._slack_s = slack_s
        self._reached = Reached()
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif (root / name).exists():
                shutil.copy2(root / name, folder / name)

    def try_switched(self, mutants: Sequence[Mutant]) -> Iterator[Verdict]:
        """Try all mutants that can be switched on; RuntimeError if the tests fail without any."""
        by_place = {mutant.key: mutant for mutant in mutants}
        (self._folder / f"{SWITCH}.py").write_text(SWITCH_SOURCE)
        originals: dict[Path, bytes] = {}
        for path, chosen in groupby(mutants, key=lambda mutant: mutant.path):
            place = self._folder / path
            originals[place] = place.read_bytes()
            place.write_text(switched(path, originals[place].decode(), {mutant.place for mutant in chosen}))
        reading, writing = os.pipe()
        plugin = Switching([*by_place], self._folder / "reached.json", writing, self._slack_s, LONGEST_S)
        child = self._fork(self._arguments, plugin)
        os.close(writing)
        with os.fdopen(reading) as told:
            first = told.readline()
            if not first or json.loads(first) is None:
                raise RuntimeError("without a mutant the tests do not pass")
            self._reached = Reached(*json.loads(first))
            for line in told:
                key, fate, seconds = json.loads(line)
                yield Verdict(by_place[key], fate, seconds)
        os.waitpid(child, 0)
        for place, original in originals.items():
            place.write_bytes(original)

    def try_loaded(self, mutant: Mutant) -> Verdict:
        """Try a mutant by loading the tree with it."""
        tests = self._reached.tests_of(mutant.key)
        place = self._folder / mutant.path
        original = place.read_bytes()
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        try:
            place.write_text(mutated(mutant.path, original.decode(), mutant.place))
            child = self._fork([*files], Selecting(tests))
            return Verdict(mutant, *wait_for(child, self._reached.limit_s(tests, self._slack_s)))
        finally:
            place.write_bytes(original)

    def _fork(self, arguments: Sequence[str], plugin: object) -> int:
        child = os.fork()
        if child == 0:
            os._exit(self._test(arguments, plugin))
        return child

    def _test(self, arguments: Sequence[str], plugin: object) -> int:
        """In a process of its own, at the head of a group of its own: what it starts ends with it."""
        import pytest

        os.setpgid(0, 0)
        os.chdir(self._folder)
        sys.path.insert(0, str(self._folder))
        os.environ["PYTHONPATH"] = str(self._folder)
        sys.dont_write_bytecode = True
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)
        own = [name for name in sys.modules if name.partition(".")[0] in ("antiphon", "tests")]
        for name in own:
            del sys.modules[name]
        options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--no-header"]
        return int(pytest.main([*options, *arguments], plugins=[plugin]))


def warm_up() -> None:
    """Load what every fork needs and no mutant changes."""
    import importlib

    for name in ("pytest", "hypothesis", "numpy", "msgspec", "pyarrow", "cryptography", "asyncio"):
        try:
            importlib.import_module(name)
        except ImportError:
            continue


def judge(
    root: Path,
    mutants: Sequence[Mutant],
    tests: Sequence[str],
    tell: Callable[[Verdict], None],
    slack_s: float = SLACK_S,
) -> list[Verdict]:
    """Try each mutant; RuntimeError if the tests fail without any."""
    warm_up()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        workshop = Workshop(root, Path(folder), tests, slack_s)
        verdicts: dict[Mutant, Verdict] = {}
        for verdict in workshop.try_switched(mutants):
            verdicts[verdict.mutant] = verdict
            tell(verdict)
        for mutant in mutants:
            if mutant not in verdicts:
                verdicts[mutant] = workshop.try_loaded(mutant)
                tell(verdicts[mutant])
    return [verdicts[mutant] for mutant in mutants]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", nargs="+", help="a file or folder, such as antiphon/protocols/dpg")
    parser.add_argument("--tests", nargs="+", help="test files or patterns; else those of the folder")
    parser.add_argument("--count", type=int, help="as many mutants, drawn by the seed; else all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("validation",), help="only in what reads a peer's PDU")
    parser.add_argument("--list", action="store_true", help="tell the mutants and try none")
    parser.add_argument("--slack-s", type=float, default=SLACK_S, help="time beyond that, in seconds")
    parser.add_argument("--root", type=Path, default=ROOT, help="of another tree than this one")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    root: Path = options.root
    mutants = gather(
        root,
        options.target,
        only_readers=options.only == "validation",
        count=options.count,
        seed=options.seed,
    )
    if options.list:
        print("\n".join(mutant.told() for mutant in mutants))
        return 0
    same = set(equivalent_of(root))
    tried = [mutant for mutant in mutants if mutant.change not in same]
    left_out, mutants = len(mutants) - len(tried), tried
    tests = expand(root, options.tests) if options.tests else concerning(root, options.target)
    print(f"{len(mutants)} mutants, each for {' '.join(tests)}", file=sys.stderr, flush=True)

    def tell(verdict: Verdict) -> None:
        print(
            f"{verdict.fate:9} {verdict.seconds:5.1f} s  {verdict.mutant.told()}", file=sys.stderr, flush=True
        )

    try:
        verdicts = judge(root, mutants, tests, tell, options.slack_s)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2
    survivors = [verdict.mutant for verdict in verdicts if verdict.fate == "survived"]
    if options.json:
        rows = [asdict(verdict.mutant) | {"fate": verdict.fate} for verdict in verdicts]
        print(json.dumps({"survived": len(survivors), "mutants": rows}, indent=1))
    else:
        told = f", {left_out} that change nothing left out" if left_out else ""
        print(f"{len(verdicts)} mutants, {len(survivors)} survived{told}")
        print("".join(f"  {mutant.told()}\n" for mutant in survivors), end="")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
