"""`antiphon import` as a user sees it: from a log to a verdict, and clear words about bad input."""

import json
from pathlib import Path

import pytest

from antiphon.cli.main import run

Capture = pytest.CaptureFixture[str]

CSV = "host,event,uuid\np,published,u1\np,published,u2\nc,consumed,u2\nc,consumed,u1\nc,exploded,u1\n"


def said(capsys: Capture, *tokens: object) -> tuple[int, str, str]:
    code = run([str(token) for token in tokens])
    out, err = capsys.readouterr()
    return code, out, " ".join(err.split())


def test_a_guess_a_mapping_a_trace(capsys: Capture, tmp_path: Path) -> None:
    log = tmp_path / "events.csv"
    log.write_text(CSV)
    code, mapping, doubts = said(capsys, "import", log, "--guess")
    assert code == 0
    assert "What 'exploded' in 'event' means is not known" in doubts
    (tmp_path / "mapping.toml").write_text(mapping)
    options = (
        "--mapping",
        tmp_path / "mapping.toml",
        "--out",
        tmp_path / "trace",
        "--expect",
        "fifo,atomicity",
    )
    code, out, _ = said(capsys, "import", log, *options, "--json")
    assert code == 0
    told = json.loads(out)
    assert (told["sends"], told["bad_lines"], told["promises"]) == (2, 0, ["fifo", "atomicity"])
    code, _, err = said(capsys, "import", log, *options)
    assert code == 2
    assert "already holds a trace" in err


def test_what_could_not_be_used_is_said(capsys: Capture, tmp_path: Path) -> None:
    log = tmp_path / "c1.log"
    log.write_text("Partition:0\tOffset:1\tx\nnonsense\n")
    code, out, err = said(capsys, "import", log, "--format", "kafka", "--out", tmp_path / "trace")
    assert code == 0
    assert "deliveries 1, bad lines 1" in out
    assert "line 2: no 'Partition:' and 'Offset:'" in err
    assert "No line is a send" in err
    assert "promises fifo." in err


def test_a_broker_and_a_consumer_need_the_topic(capsys: Capture, tmp_path: Path) -> None:
    """Without it their messages would have different names, and every delivery would look unsent."""
    (tmp_path / "c1.log").write_text("Partition:0\tOffset:0\tx\n")
    (tmp_path / "b.txt").write_text("Dumping /data/orders-0/0.log\n| offset: 0 CreateTime: 5\n")
    call = ("import", tmp_path / "c1.log", tmp_path / "b.txt", "--format", "kafka", "--out", tmp_path / "t")
    code, _, err = said(capsys, *call)
    assert code == 2
    assert "--topic NAME" in err
    code, out, _ = said(capsys, *call, "--topic", "orders")
    assert code == 0
    assert "sends 1" in out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--format", "kafka"], "Where shall the trace go?"),
        (["--out", "t"], "What wrote the logs?"),
        (["--out", "t", "--format", "csv"], "CSV and JSON lines need a mapping."),
        (["--out", "t", "--format", "smoke"], "smoke"),
        (["--out", "t", "--format", "jepsen", "--nodes", "0"], "at least one node"),
        (["--out", "t", "--format", "nats", "--expect", "beauty"], "There is no property 'beauty'."),
        (["--out", "t", "--mapping", "/no/such.toml"], "cannot be read"),
        (["--guess"], "cannot be read"),
        (["--out", "t", "--format", "nats"], "cannot be read"),
    ],
)
def test_a_senseless_call_gets_a_sentence(capsys: Capture, options: list[str], sentence: str) -> None:
    code, _, err = said(capsys, "import", "/no/such.log", *options)
    assert code == 2
    assert sentence in err
