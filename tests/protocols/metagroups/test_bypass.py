"""Messages that go past nodes in the running protocol: what is sound keeps any two groups in order.

The examples are those of the tree's tests, here with the whole protocol around them, so that loss, repair,
safe delivery, endings and hand-overs all have to do with nodes that several others hand messages to.
"""

import dataclasses
from collections.abc import Callable, Iterator

import pytest

from antiphon.check.checkers import check_trace
from antiphon.core.recording import Property
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups import CAUSAL_PROMISES, PROMISES, promises
from antiphon.protocols.metagroups import view as view_module
from antiphon.protocols.metagroups.bypass import Shortcuts, candidates
from antiphon.protocols.metagroups.pdus import Entry, Mark
from antiphon.trace.schema import Run
from tests.protocols.harness.metagroups_group import KNOBS, Cluster

BYPASS = dataclasses.replace(KNOBS, bypass=True, shape="printed")
TWO = {"A": "pqr", "B": "pq", "C": "pr", "D": "qr"}
"""<ABC> of p, <ABD> of q and <ACD> of r in a chain: the paper lets C go past q, and A not."""
THREE = {"A": "pqr", "B": "ps", "C": "qrs"}
"""<AB> of p, <AC> of q and r, <BC> of s in a chain: B goes past q, and no two groups can differ."""


@pytest.fixture
def as_printed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All that section 4.2 would go past is gone past."""
    monkeypatch.setattr(view_module, "bypassed", lambda forest: Shortcuts(forest, candidates(forest)))
    view_module.view_of.cache_clear()
    yield
    view_module.view_of.cache_clear()


def broken(cluster: Cluster, *properties: Property) -> list[Property]:
    judged = properties or promises(cluster.knobs)
    found = check_trace(cluster.recorder.events(), Run("r"), judged)
    return [violation.property for violation in found]


def entries(source: str, target: str) -> Callable[[str, str, Pdu], bool]:
    """Whether a PDU is an entry from one to another."""
    return lambda by, to, pdu: isinstance(pdu, Entry) and (by, to) == (source, target)


def orders_of_two_groups() -> Cluster:
    """p orders a message to A before one to C; on its way to r the first is held up at q."""
    cluster = Cluster(TWO, BYPASS)
    cluster.lost = entries("p", "q")
    cluster.admit("p", "A")
    cluster.admit("p", "C")
    cluster.settle()
    cluster.lost = lambda *_: False
    cluster.pass_time(500)
    return cluster


@pytest.mark.usefixtures("as_printed")
def test_section_4_2_as_printed_lets_two_groups_differ() -> None:
    cluster = orders_of_two_groups()
    assert cluster.delivered("p") == ["p0A", "p1C"]
    assert cluster.delivered("r") == ["p1C", "p0A"]
    assert broken(cluster) == ["fifo", "pairwise"]


def test_sound_shortcuts_do_not() -> None:
    cluster = orders_of_two_groups()
    assert cluster.delivered("p") == cluster.delivered("r") == ["p0A", "p1C"]
    assert broken(cluster) == []


def circle() -> Cluster:
    """a before b at p, which orders both; c before a at q, where c is ordered; b before c at s."""
    cluster = Cluster(THREE, BYPASS, others="t")
    cluster.lost = lambda *what: entries("p", "q")(*what) or entries("q", "s")(*what)
    cluster.admit("p", "A")
    cluster.admit("p", "B")
    cluster.admit("q", "C")
    cluster.settle()
    return cluster


def test_three_groups_can_be_in_a_circle_while_no_two_sites_differ() -> None:
    cluster = circle()
    cluster.lost = lambda *_: False
    cluster.pass_time(500)
    assert cluster.delivered("p") == ["p0A", "p1B"]
    assert cluster.delivered("q") == cluster.delivered("r") == ["q0C", "p0A"]
    assert cluster.delivered("s") == ["p1B", "q0C"]
    assert broken(cluster, "total") == ["total"]
    assert broken(cluster) == []
    assert {cluster.figure(name, "kept") for name in "pqrs"} == {0}


def test_the_marks_of_one_source_do_not_count_for_another() -> None:
    """What s has from p is held by all, and what it has from q is not held by r: s may deliver the first."""
    cluster = Cluster(THREE, BYPASS)
    cluster.lost = entries("q", "r")
    cluster.admit("p", "B")
    cluster.admit("q", "C")
    cluster.pass_time(200)
    assert cluster.delivered("s") == ["p0B"]
    cluster.lost = lambda *_: False
    cluster.pass_time(200)
    assert cluster.delivered("s") == ["p0B", "q0C"]
    assert broken(cluster) == []


def test_without_the_knob_the_same_schedule_makes_no_circle() -> None:
    plain = dataclasses.replace(BYPASS, bypass=False)
    cluster = Cluster(THREE, plain)
    cluster.lost = lambda *what: entries("p", "q")(*what) or entries("q", "s")(*what)
    for name, group in ("pA", "pB", "qC"):
        cluster.admit(name, group)
    cluster.settle()
    cluster.lost = lambda *_: False
    cluster.pass_time(500)
    assert cluster.delivered("s") == ["q0C", "p1B"]
    assert broken(cluster, "total") == []


def test_a_tree_that_ends_in_a_circle_keeps_what_others_have_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """r is not told that it may deliver; then t comes and the tree ends, and no order fits all streams."""
    monkeypatch.setattr(view_module, "MOST_RETIRING", 0)
    cluster = circle()
    cluster.lost = lambda _source, target, pdu: isinstance(pdu, Mark) and target == "r"
    cluster.pass_time(200)
    assert cluster.delivered("q") == ["q0C", "p0A"]
    assert cluster.delivered("r") == []
    cluster.join("t", "A")
    cluster.pass_time(300)
    assert cluster.figure("r", "stops") == 1
    assert cluster.delivered("r") == ["q0C", "p0A"]
    assert broken(cluster) == []


def test_a_node_with_several_above_it_hands_over_when_all_of_them_have_ended() -> None:
    cluster = circle()
    cluster.join("t", "A")
    cluster.join("t", "B")
    cluster.pass_time(30)
    cluster.admit("t", "A")
    cluster.lost = lambda *_: False
    cluster.pass_time(500)
    assert {cluster.figure(name, "stops") for name in "pqrst"} == {0}
    assert cluster.delivered("t") == ["t0A"]
    assert cluster.delivered("q") == cluster.delivered("r") == ["q0C", "p0A", "t0A"]
    assert broken(cluster) == []


def test_what_is_promised_follows_from_the_options() -> None:
    assert promises(KNOBS) == PROMISES
    assert promises(dataclasses.replace(KNOBS, causal=True)) == CAUSAL_PROMISES
    assert promises(dataclasses.replace(KNOBS, causal=True, delivery="agreed")) == PROMISES
    assert set(promises(BYPASS)) == {*PROMISES, "pairwise"} - {"total"}
