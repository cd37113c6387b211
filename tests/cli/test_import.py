"""`antiphon import` as a user sees it: from a log to a verdict, and clear words about bad input."""

import json
import os
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


def test_folders_and_patterns_name_logs(capsys: Capture, tmp_path: Path) -> None:
    for name in ("c1", "c2"):
        (tmp_path / "logs" / name).mkdir(parents=True)
        (tmp_path / "logs" / name / "app.log").write_text("Partition:0\tOffset:1\tx\n")
    (tmp_path / "logs" / ".hidden").write_text("nonsense\n")
    options = ("--format", "kafka", "--json")
    for number, named in enumerate((tmp_path / "logs", tmp_path / "logs" / "*" / "app.log")):
        code, out, _ = said(capsys, "import", named, *options, "--out", tmp_path / f"trace{number}")
        told = json.loads(out)
        assert (code, told["sites"], told["deliveries"], told["bad_lines"]) == (0, 2, 2, 0)
    code, _, err = said(capsys, "import", tmp_path / "*.csv", *options, "--out", tmp_path / "none")
    assert code == 2
    assert "There is no log file in" in err


def test_rotated_logs_in_a_folder_are_one_consumer(capsys: Capture, tmp_path: Path) -> None:
    """A link to a log beside it is no second log."""
    logs = tmp_path / "logs"
    logs.mkdir()
    for name, offsets in {"c.log.1": (2, 3), "c.log.2": (0, 1), "c.log": (4, 5)}.items():
        (logs / name).write_text("".join(f"Partition:0\tOffset:{offset}\tx\n" for offset in offsets))
    (logs / "current.log").symlink_to("c.log")
    (logs / "up").symlink_to("..")
    code, out, _ = said(capsys, "import", logs, "--format", "kafka", "--json", "--out", tmp_path / "trace")
    told = json.loads(out)
    assert (code, told["sites"], told["deliveries"]) == (0, 1, 6)
    assert said(capsys, "audit", tmp_path / "trace")[0] == 0


def test_a_stream_is_no_log(capsys: Capture, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        options = ("--format", "kafka", "--topic", "t", "--out", tmp_path / "trace")
        code, _, err = said(capsys, "import", f"/dev/fd/{reading}", *options)
    finally:
        os.close(reading)
        os.close(writing)
    assert code == 2
    assert "is a stream, and logs are read more than once" in err


def test_what_promises_nothing_does_not_pass(capsys: Capture, tmp_path: Path) -> None:
    """A verdict would be about nothing."""
    (tmp_path / "events.csv").write_text(CSV)
    _, mapping, _ = said(capsys, "import", tmp_path / "events.csv", "--guess")
    (tmp_path / "mapping.toml").write_text(mapping)
    options = ("--mapping", tmp_path / "mapping.toml", "--out", tmp_path / "trace")
    assert said(capsys, "import", tmp_path / "events.csv", *options)[0] == 0
    code, out, err = said(capsys, "audit", tmp_path / "trace")
    assert (code, out.split()[0]) == (2, "unknown")
    assert "name the expected properties with --expect" in err
    assert said(capsys, "audit", tmp_path / "trace", "--expect", "fifo")[0] == 1


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
