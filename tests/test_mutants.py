"""The mutation tool: what it changes, what it leaves alone, and that a survivor is one."""

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants import EQUIVALENT, ROOT, Mutant, concerning, equivalent_of, expand, gather, mutants_of
from tests.reading import READERS
from tests.schemata import own_s

pytestmark = pytest.mark.slow

SOURCE = """
from typing import Annotated

Number = Annotated[int, Meta(ge=0)]


def receive(number: int) -> bool:
    assert number != 99
    return 0 <= number < 10 and number is not None


def other(number: int) -> bool:
    return number in (1, 2)
"""


def test_each_comparison_is_turned_around_and_each_bound_moved() -> None:
    assert [(mutant.before, mutant.after) for mutant in mutants_of("m.py", SOURCE)] == [
        ("Meta(ge=0)", "Meta(ge=1)"),
        ("Meta(ge=0)", "Meta(ge=-1)"),
        ("0 <= number < 10 and number is not None", "0 <= number < 10 or number is not None"),
        ("0 <= number < 10", "0 < number < 10"),
        ("0 <= number < 10", "0 > number < 10"),
        ("0 <= number < 10", "0 <= number <= 10"),
        ("0 <= number < 10", "0 <= number >= 10"),
        ("0 <= number < 10", "1 <= number < 10"),
        ("0 <= number < 10", "-1 <= number < 10"),
        ("0 <= number < 10", "0 <= number < 11"),
        ("0 <= number < 10", "0 <= number < 9"),
        ("number is not None", "number is None"),
        ("number in (1, 2)", "number not in (1, 2)"),
    ]


PROTOCOL = """
from typing import Annotated, TypeAlias
from antiphon.core.wire import Pdu
from antiphon.core.inputs import Received, Timer

class Part(msgspec.Struct): ...

class Said(Pdu):
    place: Annotated[int, Meta(ge=3)]
    parts: tuple[Part, ...]

class SaidAgain(Said): ...

Input: TypeAlias = Received | Timer

def direct(pdu: Said) -> None:
    self.judge(1, number := pdu.place, 2)
    found.add(number)

def inherited(pdu: SaidAgain) -> None: return 10 < 0
def quoted(pdu: "Said") -> None: return 11 < 0
def alias(event: Input) -> None: return 12 < 0
def part(part: Part) -> None: return 13 < 0
def keyword(*, pdu: Said | None) -> None: return 14 < 0
async def _on_news(news: bytes) -> None: return 15 < 0
def judge(self, own: int, theirs: int, other: int) -> None:
    made = theirs + 1
    return 16 < made and own < 0 and theirs == 17
def add(number: int) -> bool: return 18 < number
def timer(event: Timer) -> None: return 19 < 0
def _sum(number: int) -> bool: return 20 < number
"""


def test_what_reads_a_pdu_is_found_by_what_a_function_takes_and_is_handed(tmp_path: Path) -> None:
    folder = tmp_path / "antiphon/protocols/some"
    folder.mkdir(parents=True)
    (tmp_path / "antiphon/core").mkdir()
    (tmp_path / "antiphon/core/wire.py").write_text("class Pdu: ...\n")
    (tmp_path / "antiphon/core/inputs.py").write_text("class Received: ...\nclass Timer: ...\n")
    (folder / "member.py").write_text(PROTOCOL)
    found = gather(tmp_path, ["antiphon"], only_readers=True, count=None, seed=1)
    assert dict.fromkeys(mutant.before for mutant in found) == dict.fromkeys(
        (
            "Meta(ge=3)", "10 < 0", "11 < 0", "12 < 0", "13 < 0", "14 < 0", "15 < 0",
            "16 < made and own < 0 and (theirs == 17)", "16 < made", "theirs == 17",
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "function"),
    [
        ("antiphon/protocols/metagroups/credible.py", "_is_every_tree_accounted_for"),
        ("antiphon/protocols/metagroups/membership.py", "_is_for_us"),
        ("antiphon/protocols/fifo/group.py", "speaks_for_itself"),
        ("antiphon/protocols/sco/roster.py", "mark_over"),
        ("antiphon/protocols/dpg/peers.py", "is_plausible"),
        ("antiphon/protocols/sequencer/sequencer_role.py", "_begin_later_epoch"),
        ("antiphon/live/congestion.py", "hear"),
    ],
)
def test_functions_that_judge_a_peers_numbers_are_among_those(path: str, function: str) -> None:
    found = gather(ROOT, [path], only_readers=True, count=None, seed=1)
    assert function in {mutant.function for mutant in found}


def test_each_module_of_which_all_reads_is_there() -> None:
    assert {path.name for path in ROOT.glob("antiphon/**/*.py")} >= READERS


def test_a_sample_is_drawn_by_its_seed() -> None:
    def draw(seed: int) -> list[Mutant]:
        return gather(ROOT, ["antiphon/core/packing.py"], only_readers=False, count=5, seed=seed)

    assert len(draw(1)) == 5
    assert draw(1) == draw(1) != draw(2)


def test_a_folder_has_its_tests() -> None:
    assert concerning(ROOT, ["antiphon/protocols/dpg/order.py"]) == expand(ROOT, ["tests/protocols/dpg"])
    assert concerning(ROOT, ["antiphon/check"]) == expand(ROOT, ["tests/check"])


def test_each_change_that_changes_nothing_is_one_change_of_today() -> None:
    """An entry of code that has changed, or that would hide a second change, is wrong."""
    listed = equivalent_of(ROOT)
    found = gather(ROOT, {path for path, *_ in listed}, only_readers=False, count=None, seed=1)
    counts = Counter(mutant.change for mutant in found)
    assert [row for row in listed if counts[row] != 1] == []


@pytest.fixture
def small_tree(tmp_path: Path) -> Path:
    """A tree with two functions and a test that does not notice every change; a slow one notices more."""
    (tmp_path / "antiphon").mkdir()
    (tmp_path / "antiphon/__init__.py").touch()
    (tmp_path / "antiphon/small.py").write_text(
        "def fits(size):\n    return size < 10\n\n\n"
        "def spins(count):\n    while count != 0:\n        count -= 2\n"
    )
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_small.py").write_text(
        "import pytest\n\nfrom antiphon.small import fits, spins\n\n\n"
        "def test_fits():\n    assert fits(3)\n    assert not fits(30)\n    spins(2)\n\n\n"
        "@pytest.mark.slow\ndef test_slowly():\n    assert fits(9)\n    assert not fits(10)\n"
    )
    return tmp_path


def mutate(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.mutants", "--root", str(tree), "antiphon", "--json", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_change_that_no_test_notices_survives_and_the_tree_stays_as_it_is(small_tree: Path) -> None:
    before = {path: path.read_bytes() for path in small_tree.rglob("*") if path.is_file()}
    done = mutate(small_tree, "--tests", "tests/test_small.py", "--slack-s", "2")
    fates = {row["after"]: row["fate"] for row in json.loads(done.stdout)["mutants"]}
    assert fates == {
        "size <= 10": "survived",
        "size >= 10": "failed",
        "size < 11": "survived",
        "size < 9": "survived",
        "count == 0": "survived",
        "count != 1": "timeout",
        "count != -1": "timeout",
    }
    assert done.returncode == 1
    assert {path: path.read_bytes() for path in small_tree.rglob("*") if path.is_file()} == before


def test_time_in_which_a_process_waits_for_a_processor_is_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork beside other work is not ended before its tests have had their time."""
    told = tmp_path / "schedstat"
    told.write_text("1 5000000000 1\n")
    monkeypatch.setattr("tests.schemata.Path", lambda _: told)
    assert own_s(1) <= time.monotonic() - 5
    told.unlink()
    assert own_s(1) <= time.monotonic()


def test_tests_that_fail_without_a_mutant_say_nothing(small_tree: Path) -> None:
    (small_tree / "tests/test_small.py").write_text("def test_wrong():\n    assert False\n")
    done = mutate(small_tree, "--tests", "tests/test_small.py")
    assert done.returncode == 2
    assert "without a mutant the tests do not pass" in done.stderr


def test_a_change_that_changes_nothing_is_left_out(small_tree: Path) -> None:
    (small_tree / EQUIVALENT).parent.mkdir()
    (small_tree / EQUIVALENT).write_text(
        '[[mutant]]\npath = "antiphon/small.py"\nfunction = "spins"\n'
        'before = "count != 0"\nafter = "count == 0"\nreason = ""\n'
    )
    done = mutate(small_tree, "--tests", "tests/test_small.py", "--slack-s", "2")
    assert "count == 0" not in {row["after"] for row in json.loads(done.stdout)["mutants"]}
