"""Which rows a space-time diagram shows, and where it puts them."""

from random import Random

import pytest
from hypothesis import given, settings

from antiphon.check.checkers import check_trace
from antiphon.check.verdict import Violation, Witness
from antiphon.core.ids import MessageId
from antiphon.core.recording import Property
from antiphon.report.diagram import (
    FLIGHT_LEVELS,
    ROWS_WANTED,
    Diagram,
    Item,
    layout,
    layout_region,
    message_range,
)
from antiphon.trace.schema import Event, Run
from tests.histories import history
from tests.report.samples import BROKEN_CHOIR, LOST_LINE
from tests.strategies import random_trace, traces


def first_violation(text: str, name: Property, context: int = 3) -> tuple[Diagram, Violation]:
    events, run, _ = history(text)
    violation = check_trace(events, run, [name])[0]
    return layout(events, violation, context), violation


def shown(diagram: Diagram) -> set[tuple[str, int]]:
    return {(item.event.site, item.event.step) for item in diagram.items if item.event is not None}


def column_items(diagram: Diagram, site: str) -> list[Item]:
    return [item for item in diagram.items if diagram.sites[item.column] == site]


@pytest.mark.parametrize("seed", range(60))
def test_every_witness_row_is_shown_and_the_layout_never_raises(seed: int) -> None:
    events, run = random_trace(Random(seed))
    present = {(event.site, event.step) for event in events}
    for violation in check_trace(events, run)[:20]:
        for context in (0, 3):
            diagram = layout(events, violation, context)
            named = {(witness.site, witness.step) for witness in violation.witness}
            assert named & present <= shown(diagram)
            assert all(0 <= item.level < diagram.levels for item in diagram.items)


@settings(max_examples=100)
@given(traces())
def test_each_members_rows_stand_in_step_order_and_hidden_rows_are_counted(
    trace: tuple[list[Event], Run],
) -> None:
    events, run = trace
    for violation in check_trace(events, run)[:5]:
        diagram = layout(events, violation)
        for site in diagram.sites:
            items = column_items(diagram, site)
            levels = [item.level for item in items]
            assert levels == sorted(set(levels))
            steps = [item.event.step for item in items if item.event is not None]
            assert steps == sorted(steps)
            logged = sum(event.site == site for event in events)
            assert logged == len(steps) + sum(item.hidden for item in items)


@settings(max_examples=100)
@given(traces("total"))
def test_a_good_traces_arrows_all_point_downward(trace: tuple[list[Event], Run]) -> None:
    events, run = trace
    delivery = next((event for event in events if event.kind == "deliver"), None)
    if delivery is None:
        return
    covered = message_range(delivery)
    assert covered is not None
    violation = Violation(
        "total", run.run, None, covered[0], covered[1], "", (Witness(delivery.site, delivery.step),)
    )
    diagram = layout(events, violation)
    for arrow in diagram.arrows:
        source, target = diagram.items[arrow.source], diagram.items[arrow.target]
        assert source.level + FLIGHT_LEVELS <= target.level


def test_the_cycle_of_a_total_order_violation_is_highlighted_at_both_members() -> None:
    diagram, violation = first_violation(BROKEN_CHOIR, "total")
    columns = {diagram.sites[stretch.column] for stretch in diagram.highlights}
    assert columns == {witness.site for witness in violation.witness}
    assert len(diagram.highlights) == 2


def test_senders_of_the_involved_messages_get_a_column_and_arrows() -> None:
    diagram, _ = first_violation(BROKEN_CHOIR, "total")
    assert "tenor" in diagram.sites
    assert "bass" not in diagram.sites
    routes = {
        (diagram.sites[diagram.items[arrow.source].column], diagram.sites[diagram.items[arrow.target].column])
        for arrow in diagram.arrows
        if arrow.hue is not None
    }
    assert routes == {("alto", "soprano"), ("alto", "tenor"), ("tenor", "alto"), ("tenor", "soprano")}


def test_a_missing_delivery_is_said_at_the_foot_of_its_column() -> None:
    diagram, _ = first_violation(LOST_LINE, "atomicity")
    last = column_items(diagram, "bass")[-1]
    assert (last.kind, last.message) == ("missing", MessageId("alto", 1))


def test_absence_runs_from_the_absent_row_to_the_present_row() -> None:
    diagram, _ = first_violation(BROKEN_CHOIR, "total")
    levels = {item.kind: item.level for item in column_items(diagram, "soprano")}
    (stretch,) = diagram.absences
    assert (stretch.top, stretch.bottom) == (levels["absent"], levels["present"])


def test_long_stretches_are_elided_and_a_single_row_is_not() -> None:
    noise = " ".join(f"c{number}" for number in range(40))
    diagram, _ = first_violation(f"a: !a0 !b0 {noise} a0 b0\nb: b0 a0", "total", context=1)
    assert [item.hidden for item in diagram.items if item.kind == "gap"] == [39]
    diagram, _ = first_violation("a: !a0 !b0 c0 c1 a0 b0\nb: b0 a0", "total", context=1)
    assert not [item for item in diagram.items if item.kind == "gap"]


def test_a_large_witness_is_shown_whole_and_gets_less_context() -> None:
    log = [Event("run", "a", step, "deliver", "b", step) for step in range(400)]
    few = tuple(Witness("a", step, "b", step) for step in range(0, 400, 50))
    many = tuple(Witness("a", step, "b", step) for step in range(0, 400, 3))
    diagram = layout(log, Violation("fifo", "run", "a", "b", 0, "", few), context=30)
    assert len(shown(diagram)) <= ROWS_WANTED + len(few)
    diagram = layout(log, Violation("fifo", "run", "a", "b", 0, "", many))
    assert {("a", witness.step) for witness in many} <= shown(diagram)


def test_a_delivery_before_its_own_cause_keeps_each_members_order() -> None:
    """Each member delivers the other's message before it sends its own: no layout suits both."""
    events, _, _ = history("a: b0 !a0\nb: a0 !b0")
    witness = (Witness("a", 0, "b", 0), Witness("b", 0, "a", 0))
    diagram = layout(events, Violation("causal", "run", "a", "b", 0, "", witness))
    assert [item.kind for item in column_items(diagram, "a")] == ["deliver", "send"]
    assert [item.kind for item in column_items(diagram, "b")] == ["deliver", "send"]


def test_other_runs_and_unknown_witnesses_are_ignored() -> None:
    events, _, _ = history("a: !a0 a0", "other")
    diagram = layout(events, Violation("total", "run", None, "a", 0, "", (Witness("z", 7),)))
    assert diagram.items == ()
    assert diagram.sites == ("z",)


def test_a_send_without_a_sender_is_its_members_own() -> None:
    events = [
        Event("run", "a", 0, "send", None, 0),
        Event("run", "b", 0, "deliver", "a", 0),
        Event("run", "b", 1, "deliver", "a", 0),
    ]
    witness = (Witness("b", 0, "a", 0), Witness("b", 1, "a", 0))
    diagram = layout(events, Violation("duplicate", "run", "b", "a", 0, "", witness))
    assert diagram.sites == ("a", "b")
    assert len(diagram.arrows) == 2


def test_rows_that_were_not_read_are_counted_by_their_steps() -> None:
    rows = [Event("r", "a", step, "deliver", "b", step) for step in (*range(10, 14), *range(5000, 5004))]
    witness = (Witness("a", 12, "b", 12), Witness("a", 5001, "b", 5001))
    diagram = layout(rows, Violation("fifo", "r", "a", "b", 12, "", witness), context=1)
    assert [item.hidden for item in diagram.items if item.kind == "gap"] == [11, 4986]


def test_an_absence_among_rows_that_were_not_read_is_drawn_where_it_is_known() -> None:
    rows = [
        Event("r", "a", 5, "deliver", "b", 0),
        Event("r", "a", 9, "absent"),
        Event("r", "a", 20, "present"),
        Event("r", "a", 30, "deliver", "b", 1),
    ]
    witness = (Witness("a", 5, "b", 0), Witness("a", 30, "b", 1))
    diagram = layout_region(rows, Violation("fifo", "r", "a", "b", 0, "", witness))
    level = {item.event.step: item.level for item in diagram.items if item.event is not None}
    assert [(span.top, span.bottom) for span in diagram.absences] == [
        (level[9], level[9] + 1),
        (level[9] + 1, level[20]),
    ]
