"""Pairwise order in the audit: judged as the pure checker does, where it is promised or expected."""

from pathlib import Path
from random import Random

import msgspec

from antiphon.audit.judging import judge
from antiphon.audit.local import audit_locally
from antiphon.audit.log import build_log
from antiphon.check.checkers import check_trace
from antiphon.check.verdict import Verdict
from antiphon.core.recording import PROPERTIES
from antiphon.trace.files import write_trace
from tests.audit.test_kernels import segments
from tests.check.test_pairwise import CIRCLE
from tests.histories import history
from tests.strategies import random_trace


def test_equal_to_the_pure_checker() -> None:
    differing = 0
    for seed in range(200):
        events, run = random_trace(Random(seed), f"run-{seed}")
        expected = check_trace(events, run, ["pairwise"])
        judgement = judge(build_log(run, segments(events)), {"pairwise": None})
        assert judgement.violations == expected, f"random_trace(Random({seed}))"
        assert judgement.counts == {"pairwise": len(expected)}
        differing += bool(expected)
    assert 30 < differing < 170


def test_limits_bound_what_is_told_but_not_what_is_counted() -> None:
    events, run, _ = history("a: !a0 a0 b0 c0\nb: !b0 c0 b0 a0\nc: !c0 a0 b0 c0")
    judgement = judge(build_log(run, segments(events)), {"pairwise": 1})
    assert judgement.counts["pairwise"] == 2
    assert len(judgement.violations) == 1


def test_a_circle_passes_where_pairwise_order_is_promised(tmp_path: Path) -> None:
    events, run, _ = history(CIRCLE)
    promised = msgspec.structs.replace(run, promises=("integrity", "pairwise"))
    write_trace(tmp_path, [events], [promised])
    result = audit_locally([tmp_path])
    assert result.verdict is Verdict.PASS
    assert result.to_json()["violations"] == {**dict.fromkeys(PROPERTIES, 0), "total": 1, "pairwise": 0}
    assert audit_locally([tmp_path], ["total"]).verdict is Verdict.FAIL


def test_two_sites_that_differ_fail_where_it_is_expected(tmp_path: Path) -> None:
    events, run, _ = history("a: !a0 a0 b0\nb: !b0 b0 a0")
    write_trace(tmp_path, [events], [run])
    assert "pairwise" not in audit_locally([tmp_path]).violations
    result = audit_locally([tmp_path], ["pairwise"])
    assert result.verdict is Verdict.FAIL
    assert result.violations["pairwise"] == 1
    assert [violation.property for violation in result.examples[:1]] == ["pairwise"]
