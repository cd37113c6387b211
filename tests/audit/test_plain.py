"""Small traces are judged by the kernels as plain Python: the same as compiled, and without the compiler."""

import subprocess
import sys
from pathlib import Path

from antiphon.trace.files import write_trace
from antiphon.trace.schema import Event, Run

EQUAL = """
import sys
from collections import Counter
from random import Random
from antiphon.core.compiled import allow_plain, leave_plain
allow_plain()
leave_plain()
from antiphon.audit.judging import judge
from antiphon.audit.log import build_log
from antiphon.audit.packing import pack
from antiphon.check.checkers import check_trace
from antiphon.core.recording import PROMISABLE, PROPERTIES
from antiphon.trace.arrow import events_table
from tests.strategies import as_imported, random_trace
judged = [*PROPERTIES, "pairwise", "causal-receipt", "gap"]
for seed in range(80):
    rng = Random(seed)
    events, run = random_trace(rng, "run")
    events = as_imported(rng, events) if seed % 3 == 0 else events
    if events:
        segments = [found.segment for found in pack(events_table(events))]
        found = judge(build_log(run, segments), dict.fromkeys(judged)).violations
        assert Counter(map(repr, found)) == Counter(map(repr, check_trace(events, run, judged))), seed
assert "numba" not in sys.modules
"""
SMALL = """
import sys
from antiphon.core.compiled import allow_plain
allow_plain()
from antiphon.audit.local import audit_locally
print(audit_locally([sys.argv[1]]).verdict.value, "numba" in sys.modules)
"""


def says(program: str, *arguments: object) -> str:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_plain_kernels_judge_as_the_checkers_do() -> None:
    says(EQUAL)


def test_only_a_small_trace_does_without_the_compiler(tmp_path: Path) -> None:
    """A few rows may cover very many messages: then the kernels are compiled."""
    for name, count in (("small", 2), ("large", 1_000_000)):
        rows = [
            Event("run", "a", 0, "send", "a", 0, count=count),
            Event("run", "a", 1, "deliver", "a", 0, count=count),
        ]
        write_trace(tmp_path / name, [rows], [Run("run", promises=("total",))])
    assert says(SMALL, tmp_path / "small") == "pass False"
    assert says(SMALL, tmp_path / "large") == "pass True"
