"""Shared by several protocols: batches that fit a PDU, round trips that are timed, and vectors of members."""

import pytest

from antiphon.core.errors import UsageError
from antiphon.core.inputs import Admit
from antiphon.core.packing import pack
from antiphon.core.time import SECOND_NS
from antiphon.protocols.admission import pack_within
from antiphon.protocols.probe import PAUSE_NS, Probe
from antiphon.protocols.roster import Roster, raise_to

SITES = ("a", "b", "c")


def test_a_batch_may_be_as_long_as_a_pdu_takes() -> None:
    size = len(pack([b"body"]).data)
    assert pack_within([b"body"], size) == pack([b"body"])
    with pytest.raises(UsageError, match=f"A batch of {size} bytes does not fit"):
        pack_within([b"body"], size - 1)


@pytest.mark.parametrize(
    ("serial", "position", "took"),
    [(0, 6, None), (0, 7, 500), (0, 8, 500), (1, 6, None), (1, 7, None)],
    ids=["too little", "all of it", "more", "timed, and too little", "timed before"],
)
def test_a_round_trip_is_timed_once_when_a_member_holds_the_whole_batch(
    serial: int, position: int, took: int | None
) -> None:
    probe = Probe()
    probe.sent(1000, 7)
    assert probe.held(1500, serial, position) == took


@pytest.mark.parametrize(("after_ns", "serial"), [(PAUSE_NS - 1, 1), (PAUSE_NS, 2)])
def test_a_batch_in_a_second_is_timed(after_ns: int, serial: int) -> None:
    probe = Probe()
    probe.sent(0, 7)
    probe.sent(after_ns, 9)
    assert probe.serial == serial
    assert PAUSE_NS == SECOND_NS


@pytest.mark.parametrize(
    ("places", "are_places"),
    [((0, 1, 2), True), (None, True), ((), False), ((-1,), False), ((3,), False), ((1, 1), False)],
)
def test_places_are_those_of_members(places: tuple[int, ...] | None, are_places: bool) -> None:
    assert Roster("a", SITES).are_places(places) == are_places


def test_a_message_may_go_to_every_member_by_name() -> None:
    handed = Roster("a", SITES).take(Admit((b"x",), destinations=frozenset(SITES)), "Co", 0)
    assert handed.places == (0, 1, 2)


def test_an_entry_rises_only_to_what_is_more() -> None:
    vector = [1, 5, 3]
    assert not raise_to(vector, [1, 4, 3])
    assert raise_to(vector, [2, 0, 3])
    assert vector == [2, 5, 3]
