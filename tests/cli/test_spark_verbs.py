"""The verbs that use Spark, as a user runs them. They share one session, which the verbs join."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from antiphon.cli.main import run
from antiphon.core.recording import PROPERTIES
from antiphon.sim.sabotage import BREAKS
from antiphon.trace.files import write_trace
from antiphon.trace.schema import Event, Run

Capture = pytest.CaptureFixture[str]
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def says(capsys: Capture, *tokens: str | Path) -> tuple[int, str, str]:
    code = run([str(token) for token in tokens])
    out, err = capsys.readouterr()
    return code, out, " ".join(err.split())


def simulated(capsys: Capture, folder: Path, *options: str) -> Path:
    assert says(capsys, "simulate", "sequencer", "--messages", "60", "--trace", folder, *options)[0] == 0
    return folder


def test_a_kept_promise_is_exit_code_0(capsys: Capture, tmp_path: Path) -> None:
    trace = simulated(capsys, tmp_path / "t", "--loss", "0.1", "--churn", "1", "--runs", "2")
    code, out, _ = says(capsys, "audit", trace, "--json")
    answer = json.loads(out)
    assert code == 0
    assert list(answer)[:6] == ["verdict", "runs", "sites", "sends", "deliveries", "violations"]
    assert (answer["engine"], answer["unknown"], answer["not_judged"], answer["reasons"]) == (
        "local",
        {},
        {},
        [],
    )
    assert (answer["verdict"], answer["runs"], answer["sites"], answer["sends"]) == ("pass", 2, 7, 120)
    assert answer["violations"] == dict.fromkeys(PROPERTIES, 0)


def test_both_engines_say_the_same(capsys: Capture, tmp_path: Path) -> None:
    trace = simulated(capsys, tmp_path / "t", "--sabotage", "swap")
    codes, outs, _ = zip(
        *(says(capsys, "audit", trace, "--engine", each, "--json") for each in ("auto", "local", "spark")),
        strict=True,
    )
    answers = [json.loads(out) for out in outs]
    assert set(codes) == {1}
    assert [answer.pop("engine") for answer in answers] == ["local", "local", "spark"]
    assert answers[0] == answers[1] == answers[2]


def test_a_report_is_the_same_from_every_engine(capsys: Capture, tmp_path: Path) -> None:
    trace = simulated(capsys, tmp_path / "t", "--sabotage", "swap")
    regions = []
    for number, (path, engine) in enumerate(
        [(str(trace), "local"), (str(trace), "spark"), (f"file://{trace}", "auto")]
    ):
        folder = tmp_path / f"r{number}"
        code, _, err = says(capsys, "audit", path, "--engine", engine, "--report", folder)
        assert code == 1
        assert f"The report is at {folder}/index.html: open it in a browser." in err
        regions.append((folder / "violation-1.html").read_text())
        index = (folder / "index.html").read_text()
        assert ("in one process" if engine == "local" else "on Spark") in index
        assert 'data-verdict="fail"' in index
    assert regions[0] == regions[1] == regions[2]


def test_large_traces_are_judged_on_spark(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = simulated(capsys, tmp_path / "t")
    monkeypatch.setattr("antiphon.audit.local.LOCAL_ROWS", 10)
    code, out, _ = says(capsys, "audit", trace, "--json")
    assert (code, json.loads(out)["engine"]) == (0, "spark")


def test_only_what_is_promised_or_asked_for_is_judged(capsys: Capture, tmp_path: Path) -> None:
    trace = simulated(capsys, tmp_path / "t", "--sabotage", "swap")
    code, out, _ = says(capsys, "audit", trace, "--expect", "fifo", "--only", "duplicate", "--json")
    answer = json.loads(out)
    assert set(answer["not_judged"]) == set(PROPERTIES) - {"fifo", "duplicate"}
    assert answer["violations"] == dict.fromkeys(PROPERTIES, 0) | {"fifo": answer["violations"]["fifo"]}
    assert code == (1 if answer["violations"]["fifo"] else 0)
    out = says(capsys, "audit", trace, "--expect", "total", "--only", "total")[1]
    assert "causal     0           0                not judged" in out
    assert "total      1           1" in out


def test_places_that_only_spark_reaches(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trace = simulated(capsys, tmp_path / "t", "--sabotage", "swap")
    code, out, _ = says(capsys, "audit", f"file://{trace}", "--violations", f"file://{tmp_path}/v")
    assert code == 1
    assert "a contradiction" in " ".join(out.split())
    assert pq.read_table(tmp_path / "v").num_rows >= 1
    code, _, err = says(capsys, "audit", trace, "--violations", "nowhere://there/v")
    assert code == 2
    assert "The violations cannot be written to nowhere://there/v" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t", "v"]


def test_a_small_trace_is_judged_without_spark(capsys: Capture, tmp_path: Path) -> None:
    trace = simulated(capsys, tmp_path / "t")
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from antiphon.cli.main import run\n"
        "code = run(['audit', sys.argv[1], '--json'])\n"
        "assert not {'jinja2', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program, trace], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["engine"] == "local"


@pytest.mark.parametrize("deed", BREAKS)
def test_every_sabotage_is_exit_code_1(capsys: Capture, tmp_path: Path, deed: str) -> None:
    trace = simulated(capsys, tmp_path / "t", "--sabotage", deed)
    code, out, _ = says(capsys, "audit", trace, "--json")
    assert code == 1
    assert json.loads(out)["verdict"] == "fail"
    assert json.loads(out)["violations"][BREAKS[deed]] >= 1


def test_a_violation_is_explained_and_drawn(capsys: Capture, tmp_path: Path) -> None:
    trace = simulated(capsys, tmp_path / "t", "--sabotage", "swap")
    code, out, _ = says(capsys, "audit", trace)
    assert code == 1
    assert out.startswith("fail")
    assert "a contradiction" in " ".join(out.split())
    assert "* in the witness" in out


def test_expect_overrides_the_recorded_promises(capsys: Capture, tmp_path: Path) -> None:
    trace = simulated(capsys, tmp_path / "t", "--sabotage", "swap")
    assert says(capsys, "audit", trace, "--expect", "integrity,duplicate")[0] == 0
    assert says(capsys, "audit", trace, "--expect", "total")[0] == 1


def test_violations_are_written_for_machines(capsys: Capture, tmp_path: Path) -> None:
    trace = simulated(capsys, tmp_path / "t", "--sabotage", "swap")
    assert says(capsys, "audit", trace, "--violations", tmp_path / "v", "--json")[0] == 1
    rows = pq.read_table(tmp_path / "v").to_pylist()
    assert "total" in {row["property"] for row in rows}


def test_what_cannot_be_judged_is_exit_code_2(capsys: Capture, tmp_path: Path) -> None:
    rows = [Event("r", "a", step, "present") for step in (3, 4)] * 2
    write_trace(tmp_path / "t", [rows], [Run("r", promises=("total",))])
    code, out, err = says(capsys, "audit", tmp_path / "t", "--json")
    assert code == 2
    assert json.loads(out)["verdict"] == "unknown"
    assert "each row of site a is there twice" in err


def test_runs_that_promised_nothing_known_ask_for_expectations(capsys: Capture, tmp_path: Path) -> None:
    write_trace(tmp_path / "t", [[Event("r", "a", 0, "present")]], [])
    code, _, err = says(capsys, "audit", tmp_path / "t", "--json")
    assert code == 2
    assert "1 of the runs have no recorded promises: name the expected properties with --expect" in err


def test_a_torn_file_is_exit_code_2(capsys: Capture, tmp_path: Path) -> None:
    trace = simulated(capsys, tmp_path / "t")
    file = next(path for path in (trace / "events").iterdir())
    file.write_bytes(file.read_bytes()[:-20])
    code, out, err = says(capsys, "audit", trace, "--json")
    assert (code, out) == (2, "")
    assert "cannot be read as Parquet" in err


def test_a_study_is_swept_resumed_and_reproduced(capsys: Capture, tmp_path: Path) -> None:
    folder = tmp_path / "sweep" / "guo-dense"
    code, out, err = says(capsys, "sweep", "guo-dense", "--out", folder, "--json")
    points = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert len(points) == 96
    assert "96 runs, 0 failed" in err
    code, out, err = says(capsys, "reproduce", "--study", "guo-dense", "--out", tmp_path, "--json")
    claims = {row["id"]: row for row in map(json.loads, out.splitlines())}
    assert code == 0
    assert "96 of them done before" in err
    assert claims["G13a"]["verdict"] == "reproduced"
    assert claims["G13a"]["command"] == "antiphon sweep guo-dense --quick"
    assert 'href="guo-dense.html"' in (tmp_path / "report" / "index.html").read_text()
    assert "Dense groups, 50 senders" in (tmp_path / "report" / "guo-dense.html").read_text()
    assert json.loads((tmp_path / "scoreboard.json").read_text()) == list(claims.values())


def test_the_demo_tells_the_kept_orders_from_the_broken_one(capsys: Capture, tmp_path: Path) -> None:
    code, out, err = says(capsys, "demo", "--out", tmp_path / "demo")
    assert code == 0
    verdicts = [line.split()[0] for line in out.splitlines() if " runs 1, " in line]
    assert verdicts == ["pass", "pass", "fail"]
    page = (tmp_path / "demo" / "report" / "index.html").read_text()
    assert "A group with a traitor" in page
    assert "The report is at" in err


def test_the_demo_leaves_other_peoples_folders_alone(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    code, _, err = says(capsys, "demo", "--out", tmp_path)
    assert code == 2
    assert "not made by the demo" in err
    assert (tmp_path / "precious").exists()


def test_an_interrupted_sweep_keeps_what_is_done_and_goes_on(tmp_path: Path) -> None:
    """A process of its own: the interrupt comes as from a terminal, to the whole process group."""
    command = [sys.executable, "-m", "antiphon.cli.main", "sweep", "guo-dense", "--out", str(tmp_path)]
    sweeping = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while not list(tmp_path.glob("runs-*.parquet")) and sweeping.poll() is None:
        time.sleep(0.01)
    os.killpg(sweeping.pid, signal.SIGINT)
    out, err = sweeping.communicate(timeout=300)
    kept = len(list(tmp_path.glob("runs-*.parquet")))
    assert kept
    assert "Traceback" not in err
    assert (sweeping.returncode, out) == (130, "")
    assert "the same command continues from there" in " ".join(err.split())


def test_no_java_is_one_sentence(tmp_path: Path) -> None:
    program = (
        "import sys, antiphon.spark.java as java; java._candidates = lambda: iter(());"
        "from antiphon.cli.main import run; sys.exit(run(['sweep', 'guo', '--out', sys.argv[1]]))"
    )
    answer = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True)
    assert answer.returncode == 2
    assert "Spark needs a Java runtime of version 17 or later" in " ".join(answer.stderr.split())
    assert "Traceback" not in answer.stderr


def test_following_tells_violations_and_ends_with_the_audits_verdict(capsys: Capture, tmp_path: Path) -> None:
    trace = simulated(capsys, tmp_path / "t", "--sabotage", "swap")
    options = ("--until-idle", "1", "--state", tmp_path / "state", "--prometheus", "0", "--json")
    code, out, err = says(capsys, "audit", "--follow", trace, *options)
    *told, final = map(json.loads, out.splitlines())
    assert code == 1
    assert {each["violation"]["property"] for each in told} >= {"total"}
    assert "Metrics are at http://127.0.0.1:" in err
    audited = json.loads(says(capsys, "audit", trace, "--json")[1])
    assert {**final, "engine": ""} == {**audited, "engine": ""}


def test_an_audit_with_a_state_reads_only_what_is_new(capsys: Capture, tmp_path: Path) -> None:
    trace, state = simulated(capsys, tmp_path / "t"), tmp_path / "state"
    assert says(capsys, "audit", trace, "--state", state)[0] == 0
    for path in (trace / "events").iterdir():
        path.write_bytes(b"gone")
    assert says(capsys, "audit", trace, "--state", state, "--json")[0] == 0
    code, _, err = says(capsys, "audit", "--follow", trace, "--state", state)
    assert (code, "belongs to audit --state" in err) == (2, True)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("a", "b", "--follow"), "--follow takes one folder"),
        (("s3a://bucket/trace", "--state", "x"), "--state takes one folder"),
        (("a", "--prometheus", "1"), "go with --follow"),
    ],
)
def test_following_makes_sense_or_is_refused(
    capsys: Capture, options: tuple[str, ...], sentence: str
) -> None:
    code, _, err = says(capsys, "audit", *options)
    assert code == 2
    assert sentence in err
