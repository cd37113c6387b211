"""Causal order by receipt in the audit: judged as the pure checker does, where it is promised or expected."""

from pathlib import Path
from random import Random

import pytest

from antiphon.audit.judging import judge
from antiphon.audit.local import audit_locally
from antiphon.audit.log import build_log
from antiphon.audit.windows.local import judge_in_windows
from antiphon.check.checkers import check_trace
from antiphon.check.verdict import Verdict
from antiphon.trace.files import write_trace
from tests.audit.test_kernels import segments
from tests.check.test_causal_receipt import RECEIVED_ONLY
from tests.histories import history
from tests.strategies import random_trace

pytestmark = pytest.mark.slow


def test_equal_to_the_pure_checker_and_stricter_than_causal_order() -> None:
    broken = stricter = 0
    for seed in range(300):
        events, run = random_trace(Random(seed), f"run-{seed}")
        expected = check_trace(events, run, ["causal-receipt"])
        judgement = judge(build_log(run, segments(events)), {"causal-receipt": None, "causal": None})
        found = [violation for violation in judgement.violations if violation.property == "causal-receipt"]
        assert found == expected, f"random_trace(Random({seed}))"
        assert judgement.counts["causal-receipt"] == len(expected) >= judgement.counts["causal"]
        broken += bool(expected)
        stricter += len(expected) > judgement.counts["causal"]
    assert broken > 50
    assert stricter > 20


def test_limits_bound_what_is_told_but_not_what_is_counted() -> None:
    events, run, _ = history("a: !a0\nb: ?a0 !b0 a0 b0\nc: b0 a0\nd: b0 a0")
    judgement = judge(build_log(run, segments(events)), {"causal-receipt": 1})
    assert judgement.counts["causal-receipt"] == 2
    assert len(judgement.violations) == 1


def test_windows_do_not_pass_it_over() -> None:
    events, run, _ = history(RECEIVED_ONLY)
    rows = segments(events)
    judgement = judge_in_windows(run, lambda: rows, {"causal-receipt": None, "causal": None}, size=2)
    assert judgement.counts["causal-receipt"] == 1


def test_it_fails_where_it_is_expected(tmp_path: Path) -> None:
    events, run, _ = history(RECEIVED_ONLY)
    write_trace(tmp_path, [events], [run])
    assert "causal-receipt" not in audit_locally([tmp_path]).violations
    result = audit_locally([tmp_path], ["causal-receipt"])
    assert result.verdict is Verdict.FAIL
    assert result.violations["causal-receipt"] == 1
