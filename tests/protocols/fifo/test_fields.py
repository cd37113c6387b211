"""Every field of every PDU of reliable FIFO multicast has bounds, and the gate keeps to them."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from antiphon.core.fields import INCARNATION_LIMIT, LONGEST_NAME, MOST_NAMES, NUMBER_LIMIT
from antiphon.core.inputs import Past
from antiphon.core.packing import Packed, pack
from antiphon.core.wire import Codec, Garbage, Packet, Pdu
from antiphon.protocols.fifo import PDUS
from antiphon.protocols.fifo.pdus import (
    BATCH_LIMIT,
    MOST_NEIGHBOURS,
    MOST_SPANS,
    Ask,
    Chunk,
    Copy,
    Data,
    Extent,
    Leaving,
    Mark,
    Position,
    Sign,
    Status,
)
from antiphon.protocols.stability.coordp import StartRound
from antiphon.protocols.stability.train import Receipt

CODEC = Codec(PDUS)
LAST = NUMBER_LIMIT - BATCH_LIMIT - 1
"""The number of the last batch that there could be."""
BODY = pack([b"x"])


def unbounded(kind: inspect.Type, name: str) -> Iterator[str]:
    """The fields, by their paths, that say nothing of how large they may be."""
    match kind:
        case inspect.IntType():
            if kind.ge is None or (kind.lt is None and kind.le is None):
                yield name
        case inspect.StrType() | inspect.BytesType():
            if kind.max_length is None:
                yield name
        case inspect.VarTupleType():
            if kind.max_length is None:
                yield name
            yield from unbounded(kind.item_type, f"{name}[]")
        case inspect.StructType():
            for field in kind.fields:
                yield from unbounded(field.type, f"{name}.{field.name}")
        case inspect.BoolType() | inspect.EnumType():
            pass
        case inspect.CustomType():
            assert kind.cls is Packed
        case _:
            yield name


@pytest.mark.parametrize("kind", PDUS)
def test_every_field_is_bounded(kind: type[Pdu]) -> None:
    assert list(unbounded(inspect.type_info(kind), kind.__name__)) == []


def extent(**changes: Any) -> Extent:
    return msgspec.structs.replace(Extent("a", 0, True, True, 0, 0, 0, 0), **changes)


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (Data(0, LAST, 0, b"", BODY), Data(0, LAST + 1, 0, b"", BODY)),
        (Data(INCARNATION_LIMIT - 1, 0, 0, b"", BODY), Data(INCARNATION_LIMIT, 0, 0, b"", BODY)),
        (Data(0, 0, 0, b"", BODY), Data(0, -1, 0, b"", BODY)),
        (Copy("a", 0, LAST, BODY), Copy("a", 0, LAST + 1, BODY)),
        (Copy("a" * LONGEST_NAME, 0, 0, BODY), Copy("a" * (LONGEST_NAME + 1), 0, 0, BODY)),
        (Ask("a", 0, (0, 1) * MOST_SPANS), Ask("a", 0, (0, 1) * (MOST_SPANS + 1))),
        (Ask("a", 0, (0, 1)), Ask("a", 0, (0,))),
        (Ask("a", 0, (0, NUMBER_LIMIT - 1)), Ask("a", 0, (0, NUMBER_LIMIT))),
        (Position(0, 0, NUMBER_LIMIT - 1), Position(0, 0, NUMBER_LIMIT)),
        (Status(0, 0, 0, 0, (extent(held=-1),)), Status(0, 0, 0, 0, (extent(held=-2),))),
        (
            Status(0, 0, 0, 0, (extent(stable=NUMBER_LIMIT - 1),)),
            Status(0, 0, 0, 0, (extent(stable=NUMBER_LIMIT),)),
        ),
        (
            Status(0, 0, 0, 0, (extent(next_incarnation=-1),)),
            Status(0, 0, 0, 0, (extent(next_incarnation=-2),)),
        ),
        (Status(0, 0, 0, 0, (extent(),)), Status(0, 0, 0, 0, ())),
        (
            Status(0, 0, 0, 0, (extent(),) * (MOST_NAMES + 1)),
            Status(0, 0, 0, 0, (extent(),) * (MOST_NAMES + 2)),
        ),
        (
            Status(0, 0, 0, 0, (extent(),), (Mark("a", 0, 0),)),
            Status(0, 0, 0, 0, (extent(),), (Mark("", 0, 0),)),
        ),
        (Leaving(0, 0), Leaving(-1, 0)),
        (Sign(0, 0, 0, False, (0,)), Sign(0, 0, 0, False, (-1,))),
        (Sign(0, 0, 0, False, (MOST_NAMES - 1,)), Sign(0, 0, 0, False, (MOST_NAMES,))),
        (
            Sign(0, 0, 0, False, (0,) * MOST_NEIGHBOURS),
            Sign(0, 0, 0, False, (0,) * (MOST_NEIGHBOURS + 1)),
        ),
        (
            Chunk(0, 0, 0, True, (), (Past("a", 0, 0, b""),)),
            Chunk(0, 0, 0, True, (), (Past("a", 0, -1, b""),)),
        ),
        (StartRound(NUMBER_LIMIT - 1), StartRound(NUMBER_LIMIT)),
        (Receipt(0, 0), Receipt(0, -1)),
    ],
)
def test_the_gate_keeps_to_the_bounds(good: Pdu, bad: Pdu) -> None:
    passed = CODEC.decode(CODEC.encode(good))
    assert isinstance(passed, Packet)
    assert passed.pdu == good
    assert isinstance(CODEC.decode(CODEC.encode(bad)), Garbage)
