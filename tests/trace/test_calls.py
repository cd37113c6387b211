"""The table of calls: written, logged live, read back, audited and drawn."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.audit.local import audit_locally
from antiphon.check.verdict import Verdict
from antiphon.cli.main import run
from antiphon.cli.pages import drawings
from antiphon.core.calls import Call
from antiphon.core.errors import InputError
from antiphon.core.values import Value, canonical
from antiphon.trace.arrow import calls_table, pq
from antiphon.trace.call_files import read_calls
from antiphon.trace.call_log import CallLog
from antiphon.trace.calls import text_value, value_text
from antiphon.trace.files import open_trace, write_trace
from antiphon.trace.schema import Run

STALE = [
    Call("a", 0, "store", "set", ("x", 1), None, 0, 1, "map", None, "r"),
    Call("a", 1, "store", "set", ("x", 2), None, 2, 3, "map", None, "r"),
    Call("b", 0, "store", "get", ("x",), 1, 4, 5, "map", None, "r"),
]
OPEN = Call("c", 0, "store", "set", ("x", b"\xff"), None, 1, None, "map", "k", "r")

VALUES: st.SearchStrategy[Value] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_a_value_survives_its_text(value: Value) -> None:
    assert canonical(text_value(value_text(value))) == canonical(value)


def test_calls_survive_their_file(tmp_path: Path) -> None:
    files = write_trace(tmp_path, [], [Run("r")], calls=[*STALE, OPEN])
    assert open_trace(tmp_path).calls == files.calls
    assert list(read_calls(files.calls[0])) == [*STALE, OPEN]


@pytest.mark.parametrize(
    ("calls", "verdict"), [(STALE, "fail"), (STALE[1:], "fail"), (STALE[:2], "pass"), ([], "unknown")]
)
def test_the_audit_judges_linearizability_where_it_is_promised(
    tmp_path: Path, calls: list[Call], verdict: str
) -> None:
    write_trace(tmp_path, [], [Run("r", promises=("linearizable",))], calls=calls)
    if not calls:
        (tmp_path / "calls").mkdir()
        pq.write_table(calls_table([]), tmp_path / "calls" / "part-00000.parquet")
    result = audit_locally([tmp_path])
    assert result.verdict.value == verdict, result
    if verdict == "unknown":
        assert result.unjudgeable == ["Run r: linearizable is unknown, because the run has no calls."]


def test_the_audit_draws_the_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_trace(tmp_path, [], [Run("r", promises=())], calls=[*STALE, OPEN])
    assert run(["audit", str(tmp_path), "--expect", "linearizable"]) == 1
    out = capsys.readouterr().out
    assert "linearizable" in out
    lines = [line.rstrip() for line in out.splitlines()]
    start = next(index for index, line in enumerate(lines) if line.split() == ["a", "b"])
    assert [line.split() for line in lines[start + 1 : start + 7]] == [
        [">", "set('x',", "1)", "."],
        ["<", "None", "."],
        [">", "set('x',", "2)", "."],
        ["<", "None", "."],
        [".", ">", "get('x')"],
        [".", "*<", "1"],
    ]
    violation = audit_locally([tmp_path], expect=["linearizable"]).examples[0]
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    assert drawings([tmp_path], violation)[1] in page
    svg = ElementTree.fromstring(drawings([tmp_path], violation)[0])
    assert len(svg.findall(".//{http://www.w3.org/2000/svg}g")) == 3


def test_a_log_survives_a_kill_and_goes_on(tmp_path: Path) -> None:
    program = f"""
import os, signal
from antiphon.trace.call_log import CallLog
log = CallLog({str(tmp_path)!r}, "r", "a")
log.end(log.begin("store", "map", "set", ("x", b"1")), None)
log.begin("store", "map", "set", ("x", 2))
os.write(log._descriptor, b'{{"call": 9, "sta')
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False)
    log = CallLog(tmp_path, "r", "a")
    number = log.begin("store", "map", "get", ("x",))
    log.end(number, 2)
    log.close()
    first, second, third = read_calls(open_trace(tmp_path).calls[0])
    assert (first.arguments, first.result, first.answered) == (("x", b"1"), None, True)
    assert (second.arguments, second.answered) == (("x", 2), False)
    assert (third.number, third.result) == (2, 2)
    assert first.start < (first.end or 0) < second.start < third.start
    assert first.clock == third.clock
    assert audit_locally([tmp_path], expect=["linearizable"]).verdict is Verdict.PASS


def test_files_that_are_no_calls_are_refused(tmp_path: Path) -> None:
    (tmp_path / "calls").mkdir()
    path = tmp_path / "calls" / "part-00000.parquet"
    pq.write_table(calls_table(STALE).drop_columns(["operation"]), path)
    with pytest.raises(InputError, match="The column operation is missing"):
        list(read_calls(path))
    table = calls_table([Call("a", 0, "o", "get", (), None, 5, 3, run="r")])
    pq.write_table(table, path)
    with pytest.raises(InputError, match="ends before it starts"):
        list(read_calls(path))
