"""The bounds of the quorum protocol's knobs, and of the fields of its PDUs and of what is kept on disk."""

from typing import Any

import msgspec
import pytest

from antiphon.core.errors import UsageError
from antiphon.core.wire import Codec, Garbage, Packet, Pdu
from antiphon.protocols.quorum import LARGEST_BODY_BYTES, QuorumConfiguration
from antiphon.protocols.quorum import ports as qp
from antiphon.protocols.quorum.pdus import (
    BATCH,
    MERGE,
    MOST_PIECES,
    MOST_VOTERS,
    Append,
    Config,
    Entry,
    Offer,
)
from antiphon.protocols.quorum.sides import MOST_STATE_BYTES, SIDE_PDUS, Surrender

KNOBS = QuorumConfiguration()


@pytest.mark.parametrize(
    ("knob", "least", "most"),
    [
        ("heartbeat_ns", 1, KNOBS.election_ns - 1),
        ("batch_bytes", 1, LARGEST_BODY_BYTES),
        ("piece_bytes", 1, LARGEST_BODY_BYTES),
        ("piece_window", 1, MOST_PIECES),
        ("window", 1, None),
        ("forwards", 1, None),
        ("expected", 0, MOST_VOTERS),
    ],
)
def test_knobs_have_bounds(knob: str, least: int, most: int | None) -> None:
    fit = [least] if most is None else [least, most]
    unfit = [least - 1] if most is None else [least - 1, most + 1]
    for value in fit:
        named: dict[str, Any] = {knob: value}
        QuorumConfiguration(**named)
    for value in unfit:
        named = {knob: value}
        with pytest.raises(UsageError):
            QuorumConfiguration(**named)


def append_of(**changes: Any) -> Append:
    entry = msgspec.structs.replace(Entry(1, BATCH, "b", 1, 1, b""), **changes)
    return Append(1, 1, 1, 0, 0, 0, 0, (entry,))


@pytest.mark.parametrize(
    ("fits", "does_not"),
    [
        (append_of(kind=0), append_of(kind=-1)),
        (append_of(kind=MERGE), append_of(kind=MERGE + 1)),
        (append_of(sender="b" * 64), append_of(sender="b" * 65)),
        (append_of(number=0), append_of(number=-1)),
        (Offer(1, 1, 1, 1, 1, 1, 0), Offer(1, 1, 1, 1, 1, 1, -1)),
        (Surrender(1, 1, 1, 0, 0), Surrender(1, 1, 1, -1, 0)),
        (Surrender(1, 1, 1, MOST_STATE_BYTES, 0), Surrender(1, 1, 1, MOST_STATE_BYTES + 1, 0)),
        (Surrender(1, 1, 1, 0, 0), Surrender(1, 1, 1, 0, -1)),
    ],
)
def test_no_field_goes_beyond_its_bounds(fits: Pdu, does_not: Pdu) -> None:
    codec = Codec(SIDE_PDUS)
    assert isinstance(codec.decode(codec.encode(fits)), Packet)
    assert isinstance(codec.decode(codec.encode(does_not)), Garbage)


def test_only_what_carries_entries_is_paced() -> None:
    assert append_of().bodies is not None
    assert msgspec.structs.replace(append_of(), entries=()).bodies is None


@pytest.mark.parametrize(("vote", "fits"), [("v" * 64, True), ("v" * 65, False)])
def test_a_vote_on_disk_is_a_name(vote: str, fits: bool) -> None:
    kept = msgspec.msgpack.encode(qp.Durable(1, 1, Config({"a": 1}), 1, vote))
    if fits:
        assert msgspec.msgpack.decode(kept, type=qp.Durable).vote == vote
    else:
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(kept, type=qp.Durable)


@pytest.mark.parametrize(("time_ns", "fits"), [(0, True), (-1, False)])
def test_a_snapshots_time_is_no_less_than_nothing(time_ns: int, fits: bool) -> None:
    blob = qp.Snapshot(qp.SnapshotHead(7, 2, Config({"a": 1}), {}, time_ns), b"state")
    if fits:
        assert qp.Snapshot.read(blob.prefix + blob.data).head.time_ns == time_ns
    else:
        with pytest.raises(ValueError):
            qp.Snapshot.read(blob.prefix + blob.data)


def test_a_learner_is_known_by_its_identity_too() -> None:
    config = Config({"a": 1}, {"b": 2})
    assert [config.identity_of(name) for name in "abc"] == [1, 2, None]
