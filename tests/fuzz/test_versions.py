"""Datagrams kept of every version of the wire that this one reads: they still mean the same."""

import json
from typing import Any

import pytest

from antiphon.core.wire import OLDEST, VERSION, Codec, Packet
from tests.fuzz.record import KEPT, KINDS, plain

READ = range(OLDEST, VERSION + 1)


def rows(version: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((KEPT / f"wire-{version}.json").read_text())
    return found


@pytest.mark.parametrize("version", READ)
def test_what_an_earlier_version_sent_is_read_to_the_same_values(version: int) -> None:
    codecs = {order: Codec(kinds) for order, kinds in KINDS.items()}
    for row in rows(version):
        found = codecs[row["order"]].decode(bytes.fromhex(row["datagram"]))
        assert isinstance(found, Packet), (row["kind"], found)
        assert found.sender == "m0"
        assert agrees(row["values"], plain(found.pdu)), (row["kind"], plain(found.pdu))


def agrees(before: Any, now: Any) -> bool:
    """Whether a value is what it was; a Struct may have got fields since."""
    if isinstance(before, list) and isinstance(now, list):
        return len(before) <= len(now) and all(map(agrees, before, now))
    return bool(before == now)


def test_every_kind_of_pdu_of_this_version_is_kept() -> None:
    kept = {(row["order"], row["kind"]) for row in rows(VERSION)}
    assert kept == {(order, kind.__name__) for order, kinds in KINDS.items() for kind in kinds}
