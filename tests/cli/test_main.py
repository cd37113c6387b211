"""The command line as a user sees it: stdout, stderr and exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.cli.main import VERBS, run
from antiphon.sim.scenarios import scenario_names

Capture = pytest.CaptureFixture[str]


def says(capsys: Capture, *tokens: str) -> tuple[int, str, str]:
    """What a command answers; lines are joined, since a terminal's width is not what is tested."""
    code = run(list(tokens))
    out, err = capsys.readouterr()
    return code, out, " ".join(err.split())


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(capsys: Capture, verb: str) -> None:
    code, out, _ = says(capsys, verb, "--help")
    assert code == 0
    assert f"Example: antiphon {verb}" in " ".join(out.split())


@pytest.mark.parametrize("name", scenario_names())
def test_every_protocol_has_help_with_an_example(capsys: Capture, name: str) -> None:
    code, out, _ = says(capsys, "simulate", name, "--help")
    assert code == 0
    assert f"Example: antiphon simulate {name}" in " ".join(out.split())
    assert out.count("Example:") == 1


def test_a_scenario_that_is_not_in_the_list_is_named_by_its_module(capsys: Capture) -> None:
    name = "antiphon.studies.guo.search:SCENARIO"
    for _ in range(2):
        code, out, _ = says(capsys, "simulate", name, "--members", "10", "--seeds", "1", "--json")
        assert code == 0
        assert json.loads(out)["iterations"] == 5


@pytest.mark.parametrize(
    ("tokens", "sentence", "hint"),
    [
        (["frobnicate"], "There is no command 'frobnicate'.", "There are: demo"),
        (["simulat"], "There is no command 'simulat'.", "Did you mean 'simulate'?"),
        (["simulate", "cordp"], "There is no protocol 'cordp' to simulate.", "Did you mean 'coordp'?"),
        (["simulate", "coordp", "--membres", "5"], "Unknown option: --membres.", "simulate coordp --help"),
        (["simulate", "coordp", "--members", "abc"], "Invalid value for --members", "--help"),
        (["simulate", "coordp", "--members", "1"], "nothing to detect", "Take 2 or more."),
        (["simulate", "coordp", "--density", "foggy"], "foggy", "--help"),
        (["simulate", "coordp", "--runs", "0"], "--runs", "--help"),
        (["simulate", "--members", "5"], "Which protocol?", "--profile"),
        (["simulate", "--profile", "srn"], "There is no profile 'srn'.", "Did you mean 'srm'?"),
        (["perf", "--profile", "totem"], "runs in the simulator only", "antiphon simulate --profile totem"),
        (["audit"], "PATHS requires an argument", "antiphon audit --help"),
        (["audit", "/no/such/trace"], "There is no trace at /no/such/trace", "events/"),
        (["audit", ".", "--expect", "beauty"], "There is no property 'beauty'.", "There are: integrity"),
        (["sweep", "gou"], "There is no study 'gou'.", "guo, guo-dense, jia, konorski, large"),
        (["sweep", "guo", "--quick", "--full"], "either quickly or in full", ""),
    ],
)
def test_mistakes_get_a_sentence_and_a_hint(
    capsys: Capture, tokens: list[str], sentence: str, hint: str
) -> None:
    code, out, err = says(capsys, *tokens)
    assert code == 2
    assert out == ""
    assert sentence in err
    assert hint in err
    assert "Traceback" not in err


def test_simulate_prints_one_json_object_per_run(capsys: Capture) -> None:
    code, out, err = says(capsys, "simulate", "coordp", "--seed", "3", "--runs", "2", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["seed"] for row in rows] == [3, 4]
    expected = {"tpr_s", "tpr_last_s", "steps", "hop_messages", "queue_mean", "queue_max", "finished"}
    assert expected <= rows[0].keys()
    assert err == ""


def test_ordering_protocols_print_what_the_contract_asks(capsys: Capture) -> None:
    code, out, _ = says(capsys, "simulate", "sequencer", "--messages", "50", "--json")
    expected = {"deliveries", "throughput", "latency_s", "network_messages", "violations"}
    row = json.loads(out)
    assert code == 0
    assert expected <= row.keys()
    assert row["violations"] == 0


def test_a_profile_is_simulated_by_its_name_alone(capsys: Capture) -> None:
    tokens = ("--profile", "rmtp", "--messages", "40", "--senders", "1", "--json")
    code, out, _ = says(capsys, "simulate", *tokens)
    assert code == 0
    assert json.loads(out)["violations"] == 0
    assert says(capsys, "simulate", "profile", *tokens)[1] == out


def test_simulate_prints_for_people_too(capsys: Capture) -> None:
    code, out, _ = says(capsys, "simulate", "coordp")
    assert code == 0
    assert "tpr_s" in out
    assert "seed 0" in out


def test_a_trace_is_written_and_never_overwritten(capsys: Capture, tmp_path: Path) -> None:
    tokens = ("simulate", "sequencer", "--messages", "30", "--trace", str(tmp_path / "trace"), "--runs", "2")
    assert says(capsys, *tokens)[0] == 0
    assert (tmp_path / "trace" / "events").is_dir()
    code, out, err = says(capsys, *tokens)
    assert code == 2
    assert out == ""
    assert "already holds a trace" in err


def test_an_output_folder_that_cannot_be_written_is_told_before_any_work(
    capsys: Capture, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    code, out, err = says(capsys, "simulate", "coordp", "--trace", str(tmp_path / "file" / "trace"))
    assert (code, out) == (2, "")
    assert "cannot be written" in err


def test_the_installed_command_works() -> None:
    command = Path(sys.executable).parent / "antiphon"
    answer = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "0.1.0"


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m antiphon.cli.main simulate coordp --runs 200 --json | head -n 1"
    answer = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert answer.stderr == ""
    assert json.loads(answer.stdout)["seed"] == 0


def test_our_own_mistakes_are_owned(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTIPHON_DEBUG", raising=False)
    monkeypatch.setattr("antiphon.cli.main.build", lambda _: 1 / 0)
    code, _, err = says(capsys, "demo")
    assert code == 2
    assert "mistake of Antiphon's own: ZeroDivisionError" in err


def test_an_interrupt_is_told_in_a_word(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("antiphon.cli.main.build", interrupted)
    code, _, err = says(capsys, "demo")
    assert (code, err) == (130, "Interrupted.")


INTERRUPTED_WHILE_LOADING = """
import os, signal, sys

class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupter())
sys.argv = ["antiphon", "simulate", "sequencer"]
from antiphon.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["cyclopts", "antiphon.cli.simulate"])
def test_an_interrupt_while_the_command_line_loads_is_told_in_a_word(module: str) -> None:
    code = INTERRUPTED_WHILE_LOADING.format(module=module)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "Interrupted.\n")
