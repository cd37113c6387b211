"""Mappings proposed from first lines: they can be used as they are, and say what they do not know."""

from pathlib import Path

import pytest

from antiphon.core.errors import InputError
from antiphon.trace.adapters.guess import Guess, guess
from antiphon.trace.adapters.mapping import Mapping, read_mapping
from antiphon.trace.adapters.record import Line, Record


def guessed(text: str) -> Guess:
    return guess(Line(number, line) for number, line in enumerate(text.splitlines(), 1))


def usable(tmp_path: Path, proposal: Guess) -> Mapping:
    path = tmp_path / "mapping.toml"
    path.write_text(proposal.toml)
    return read_mapping(path)


CSV = "ts;host;event;uuid\n2026-01-01T00:00:00Z;a;published;u1\n2026-01-01T00:00:01Z;b;consumed;u1\n"
JSONL = '{"timestamp": 1700000000, "consumer": "b", "offset": 3, "topic": "t"}\n{"torn'


def test_csv_is_mapped_by_the_names_of_its_columns(tmp_path: Path) -> None:
    proposal = guessed(CSV)
    mapping = usable(tmp_path, proposal)
    lines = (Line(number, line) for number, line in enumerate(CSV.splitlines(), 1))
    found = list(mapping.parse("log", lines))
    assert [(each.site, each.kind, each.message_id) for each in found if isinstance(each, Record)] == [
        ("a", "send", "u1"), ("b", "deliver", "u1"),
    ]  # fmt: skip
    assert proposal.doubts == (
        "What the system promises is not known: set promises, or use antiphon audit --expect.",
        "Rows are ordered by their lines: set columns.order if files were merged or sorted.",
    )


def test_what_cannot_be_told_is_said(tmp_path: Path) -> None:
    proposal = guessed(JSONL)
    assert usable(tmp_path, proposal).columns.number == "offset"
    said = " ".join(proposal.doubts)
    assert "every line counts as a delivery" in said
    assert "Numbers without a sender" in said
    said = " ".join(guessed("a,when,kind\n1,x,boom\n").doubts)
    assert "each file counts as one" in said
    assert "No column names the message" in said
    assert "What 'boom' in 'kind' means is not known" in said


def test_a_name_may_have_further_words_and_a_mapping_must_name_the_message(tmp_path: Path) -> None:
    mapping = usable(tmp_path, guessed("event-time,pod_host,msg_uuid,x\n1,a,u1,y\n"))
    assert (mapping.columns.site, mapping.columns.message_id) == ("pod_host", "msg_uuid")
    with pytest.raises(InputError, match="does not say which column names the message"):
        usable(tmp_path, guessed("host,what\na,b\n"))


def test_times_that_go_back_or_make_no_sense_are_doubted() -> None:
    assert "goes back now and then" in " ".join(guessed("ts,id\n2,a\n1,b\n").doubts)
    assert "not understood as a time" in " ".join(guessed("ts,id\nnoon,a\n1,b\n").doubts)


@pytest.mark.parametrize("text", ["", "one column\nnothing\n", "no heading at all"])
def test_what_is_neither_csv_nor_json_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        guessed(text)


@pytest.mark.parametrize(
    "text",
    ["format = 'xml'", "format = 'csv'\n[columns]\nsight = 'x'", "=", "format = 'csv'\n[columns]\nsite = 3"],
)
def test_a_senseless_mapping_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mapping.toml"
    path.write_text(text)
    with pytest.raises(InputError, match="makes no sense"):
        read_mapping(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_mapping(tmp_path / "none.toml")
