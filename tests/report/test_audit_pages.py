"""The pages of `antiphon audit --report` as text: every verdict, every violation, hostile names."""

import json
import re
from pathlib import Path

import pytest

from antiphon.check.checkers import check_trace
from antiphon.cli.main import run
from antiphon.core.errors import OutputError
from antiphon.core.ids import MessageId
from antiphon.report.diagram import layout_region
from antiphon.report.region import MOST_ROWS, MOST_SITES, bounded, closer_look, explorer_data, first_look
from antiphon.report.shell import prepare_folder
from antiphon.trace.files import write_trace
from antiphon.trace.schema import Event, Run
from antiphon.trace.window import read_windows
from tests.histories import history
from tests.report.samples import BROKEN_CHOIR, LOST_LINE
from tests.report.test_site import EVIL, Reader

CHAIN = """
a: !a0>b,d !a1>b
b: a0 !b0>c
c: b0 !c0>d
d: c0 a0
"""
UNSENT = "a: z0 z1\nb: z0 z1"
KEPT = "a: !a0 a0\nb: a0"


def write_choirs(folder: Path) -> Path:
    """Runs that keep everything, break something, or cannot be judged."""
    texts = {"choir": BROKEN_CHOIR, "line": LOST_LINE, "chain": CHAIN, "unsent": UNSENT, "kept": KEPT}
    events, runs = [], []
    for name, text in texts.items():
        own, row, _ = history(text, name)
        events.append(own)
        runs.append(row)
    write_trace(folder, events, runs)
    return folder


def write_evil(folder: Path) -> Path:
    """Two sites with hostile names that disagree on two messages with hostile names."""
    sites = [f"{EVIL}{site}\u202e" for site in "ab"]
    events = [
        Event(EVIL, site, step, "deliver", sites[step ^ swap], 0, message_id=f"</script>{EVIL}{step ^ swap}")
        for swap, site in enumerate(sites)
        for step in range(2)
    ]
    write_trace(folder, [events], [Run(EVIL, promises=("total",))])
    return folder


def report(trace: Path, folder: Path, *options: str) -> Path:
    assert run(["audit", str(trace), "--report", str(folder), *options]) in (0, 1, 2)
    return folder / "index.html"


def pages(index: Path) -> list[Path]:
    return sorted(index.parent.glob("violation-*.html"))


def region_of(page: Path) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="region">(.+?)</script>', page.read_text())
    assert found is not None
    decoded: dict[str, object] = json.loads(found[1])
    return decoded


def test_the_first_page_has_every_verdict_with_its_reason(tmp_path: Path) -> None:
    index = report(write_choirs(tmp_path / "t"), tmp_path / "r", "--only", "fifo")
    text = index.read_text()
    words = Reader(text).words
    for name in ("choir", "line", "chain", "unsent", "kept"):
        assert f'data-run="{name}"' in text
    verdicts = dict(re.findall(r'data-run="(\w+)" data-verdict="(\w+)"', text))
    assert verdicts == {
        "choir": "fail", "line": "fail", "chain": "fail", "unsent": "unknown", "kept": "pass"
    }  # fmt: skip
    assert list(verdicts)[-1] == "kept", "what needs a reader's eyes comes first"
    assert "no site logged a send" in words
    assert "not judged" not in re.sub(r"<p class=.lead.>.*?</p>", "", text.split('id="runs"')[1], flags=re.S)
    assert len(pages(index)) == 3
    assert "antiphon audit" in words
    assert "--only fifo" in words


def test_what_was_not_judged_is_said(tmp_path: Path) -> None:
    events, row, _ = history(BROKEN_CHOIR, "choir")
    write_trace(tmp_path / "t", [events], [Run("choir", promises=("fifo",), groups=row.groups)])
    index = report(tmp_path / "t", tmp_path / "r", "--only", "total")
    text = index.read_text()
    assert text.count('class="cell not-judged"') == 5
    assert "– everywhere" in text
    assert 'data-verdict="pass"' in text
    assert "not promised" in text, "the violation of total order breaks no promise"


def test_a_violations_page_has_the_argument_the_diagram_and_the_region(tmp_path: Path) -> None:
    index = report(write_choirs(tmp_path / "t"), tmp_path / "r")
    for page in pages(index):
        reader = Reader(page.read_text())
        assert {"noscript", "svg", "pre", "fieldset"} <= set(reader.tags)
        assert "a contradiction." in reader.words
    titles = [re.search("<h1>(.+?)</h1>", page.read_text()) for page in pages(index)]
    assert [found[1] for found in titles if found] == [
        "Atomicity violated", "Causal order violated", "Total order violated"
    ]  # fmt: skip


def test_hostile_names_are_words_and_nothing_else(tmp_path: Path) -> None:
    index = report(write_evil(tmp_path / "t"), tmp_path / "r")
    assert len(pages(index)) == 1
    for page in (index, *pages(index)):
        reader = Reader(page.read_text())
        assert "img" not in reader.tags
        assert reader.tags.count("script") == (2 if page == index else 3)
        assert not any(name.startswith("on") for name, _ in reader.attributes)
        assert "\u202e" not in page.read_text()
    data = region_of(pages(index)[0])
    assert "\\u202e" in json.dumps(data["sites"])


def test_messages_have_the_names_of_their_own_system(tmp_path: Path) -> None:
    index = report(write_evil(tmp_path / "t"), tmp_path / "r")
    words = Reader(pages(index)[0].read_text()).words
    assert "Its name in its own system" in words
    assert f"</script>{EVIL}0" in words


def test_pages_of_an_earlier_audit_are_removed_and_other_files_are_not(tmp_path: Path) -> None:
    trace = write_choirs(tmp_path / "t")
    index = report(trace, tmp_path / "r")
    (tmp_path / "r" / "violation-notes.html").write_text("mine")
    assert len(pages(index)) == 4
    report(trace, tmp_path / "r", "--show", "0")
    assert [page.name for page in pages(index)] == ["violation-notes.html"]


def test_a_folder_that_cannot_be_written_is_said_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="The report cannot be written to"):
        prepare_folder(tmp_path / "file" / "r")
    assert run(["audit", str(tmp_path / "no-trace"), "--report", str(tmp_path / "file")]) == 2


def test_a_region_has_the_neighbourhood_at_every_member_and_is_bounded(tmp_path: Path) -> None:
    """Forty sites deliver 300 messages; the last swaps two of them."""
    events = [Event("r", "s00", number, "send", "s00", number) for number in range(300)]
    for site in range(40):
        order = list(range(300))
        if site == 39:
            order[150], order[151] = 151, 150
        first = 300 if site == 0 else 0
        events += [
            Event("r", f"s{site:02d}", first + place, "deliver", "s00", number)
            for place, number in enumerate(order)
        ]
    write_trace(tmp_path / "t", [events], [Run("r", promises=("total",))])
    index = report(tmp_path / "t", tmp_path / "r")
    data = region_of(pages(index)[0])
    assert isinstance(data["items"], list)
    assert isinstance(data["sites"], list)
    assert data["omitted"] == 40 - MOST_SITES
    assert {"s00", "s39"} <= set(data["sites"])
    rows = [item for item in data["items"] if item["kind"] != "gap"]
    assert len(rows) <= MOST_ROWS
    for column in range(MOST_SITES):
        assert sum(item["column"] == column for item in rows) > 20
    gaps = [item["label"] for item in data["items"] if item["kind"] == "gap"]
    assert "134 rows" in gaps, "rows that were not read are counted by their steps"


def test_the_sends_of_the_neighbours_are_read(tmp_path: Path) -> None:
    events = [Event("r", "a", number, "send", None, number) for number in range(100)]
    events += [Event("r", "b", number, "deliver", "a", number) for number in range(100)]
    events += [Event("r", "b", 100, "deliver", "a", 50)]
    write_trace(tmp_path, [events], [Run("r", promises=("duplicate",))])
    (violation,) = check_trace(events, Run("r"), ["duplicate"])
    (first,) = read_windows([tmp_path], [first_look(violation)])
    (region,) = read_windows([tmp_path], [closer_look(violation, first)])
    rows, omitted = bounded(region, violation)
    delivered = {event.number for event in rows if event.kind == "deliver"}
    sent = {event.number for event in rows if event.kind == "send"}
    assert delivered <= sent
    assert omitted == 0
    assert MessageId("a", 50) in first_look(violation).messages
    data = json.loads(explorer_data(layout_region(rows, violation), violation, omitted))
    steps = [data["items"][index]["step"] for index in data["witness"]]
    assert steps == [50, 100]


def test_batches_are_cut_into_units_that_rows_cover_whole(tmp_path: Path) -> None:
    events, row, _ = history("a: !a0..5 a0..2 a3..5\nb: a0 a4 a2", "r")
    violation = check_trace(events, row, ["fifo"])[0]
    data = json.loads(explorer_data(layout_region(events, violation), violation, 0))
    assert [name for name, _ in data["units"]] == ["a:0", "a:1", "a:2", "a:3", "a:4", "a:5"]
    covered = {item["label"]: item["units"] for item in data["items"]}
    assert covered["send a:0..5"] == [0, 6]
    assert covered["deliver a:3..5"] == [3, 6]
    assert covered["deliver a:4"] == [4, 5]
