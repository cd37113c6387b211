"""Members of different releases in one group: what a later one adds is skipped and counted."""

import asyncio
from typing import Any, ClassVar

import pytest

from antiphon.core.packing import Packed, pack
from antiphon.core.wire import HEADER, MAGIC, VERSION, Codec, Garbage, Packet, Pdu, Reason
from antiphon.live.gate import LATER_FIELDS
from antiphon.live.group import Group
from antiphon.live.handshake import NUMBER_BYTES, Challenge, Hello, Terms
from antiphon.live.transport import Missing, with_own
from tests.live.members import joined, read, within
from tests.live.pairs import CODEC, RING, Ear, Note, acquaint, drive, ears, group_name, note, repeat

ORDERS = ("fifo", "causal", "sequencer", "total")


class LaterCodec(Codec):
    """Writes one more field behind those of every PDU of a protocol."""

    def encode_into(self, pdu: Pdu, buffer: bytearray, offset: int) -> None:
        super().encode_into(pdu, buffer, offset)
        if pdu.code < 16:
            return
        kind = buffer[offset]
        if kind & 0xF0 == 0x90 and kind != 0x9F:
            buffer[offset] = kind + 1
        elif kind == 0x9F:
            buffer[offset : offset + 1] = b"\xdc\x00\x10"
        else:
            assert kind == 0xDC
            buffer[offset + 1 : offset + 3] = (
                int.from_bytes(buffer[offset + 1 : offset + 3], "big") + 1
            ).to_bytes(2, "big")
        buffer += b"\xa5later"


class Unheard(Pdu, frozen=True):
    """A kind of PDU that the others do not know."""

    code: ClassVar[int] = 250
    number: int


def make_later(group: Group) -> None:
    """Let a member send as a member of a later release would."""
    assert group._transport is not None
    framer = group._transport._framer
    framer._codec = LaterCodec((*framer._codec.kinds, Unheard))


@pytest.mark.parametrize("key", [None, RING], ids=["open", "sealed"])
@pytest.mark.parametrize("order", ORDERS)
def test_a_group_of_two_releases_works_in_every_order(order: str, key: Any) -> None:
    async def body() -> None:
        async with joined("a", "b", "c", order=order, key=key) as groups:
            for later in groups[1:]:
                make_later(later)
                assert later._transport is not None
                later._transport.multicast(Unheard(1))
            for turn in range(20):
                for group in groups:
                    await group.send(f"{turn}".encode())
            sent = [await group.send(b"x" * 100_000) for group in groups]
            heard = await asyncio.gather(*(read(group, 63) for group in groups))
            assert all(len(log) == 63 for log in heard)
            for each in sent:
                await each.stable()
            drops = groups[0].counters["drops"]
            assert drops[LATER_FIELDS] > 0
            assert drops[Reason.KIND.value] > 0
            assert all(group.poison == () for group in groups)

    within(body())


def test_bodies_are_read_though_a_later_field_follows_them() -> None:
    class Longer(Pdu, frozen=True):
        code: ClassVar[int] = Note.code
        number: int
        bodies: Packed
        more: bytes = b"later"

    written = Codec([Longer]).encode(Longer(5, pack([b"first", b"second"])))
    found = CODEC.decode(written)
    assert isinstance(found, Packet)
    assert found.pdu == Note(5, pack([b"first", b"second"]))
    assert CODEC.has_later_fields(Note.code, written[HEADER.size :])
    ours = CODEC.encode(Note(5, pack([b"first"])))
    assert not CODEC.has_later_fields(Note.code, ours[HEADER.size :])


def test_many_fields_are_counted_too() -> None:
    kinds: list[Any] = []
    for count in (15, 16, 17):
        fields = {f"field{number}": int for number in range(count)}
        kinds.append(type("Wide", (Pdu,), {"__annotations__": {**fields, "code": ClassVar[int]}, "code": 60}))
    for written, kind in enumerate(kinds):
        body = Codec([kind]).encode(kind(*range(15 + written)))[HEADER.size :]
        for known, reader in enumerate(kinds):
            assert Codec([reader]).has_later_fields(60, body) == (written > known)


@pytest.mark.parametrize("key", [None, RING], ids=["open", "sealed"])
def test_processes_that_share_no_version_say_so_and_stay_apart(key: Any) -> None:
    group = group_name()
    terms = Terms({}, oldest=VERSION + 1, newest=VERSION + 2)
    now, later = Ear("a", group, key), Ear("b", group, key, terms=terms)
    with ears(now, later) as both:
        drive(both, lambda: all(ear.news.refusals for ear in both))
        ours, theirs = f"{VERSION} to {VERSION}", f"{VERSION + 1} to {VERSION + 2}"
        assert now.news.refusals == [
            (
                "b",
                f"'b' supports the wire versions {theirs}, this member {ours}: run releases that share one.",
            )
        ]
        assert later.news.refusals[0][1].startswith(
            f"'a' supports the wire versions {ours}, this member {theirs}"
        )
        assert not now.transport.addresses
        assert not later.transport.addresses


def test_processes_that_share_a_version_meet() -> None:
    group = group_name()
    terms = Terms({}, oldest=VERSION - 1, newest=VERSION + 2)
    now, later = Ear("a", group), Ear("b", group, terms=terms)
    with ears(now, later) as both:
        acquaint(*both)
        repeat(both, lambda: later.transport.multicast(note(3)), lambda: bool(now.numbers("b")))


def test_greetings_of_any_version_are_read_and_nothing_else() -> None:
    codec = with_own(CODEC)
    for version in (1, VERSION, 40):
        for pdu, expected in ((Hello(version, version), None), (Missing(1, b"\1"), Reason.VERSION)):
            written = bytearray(codec.encode(pdu))
            assert written[:2] == MAGIC
            written[2] = version
            found = codec.decode(bytes(written))
            reason = found.reason if isinstance(found, Garbage) else None
            if version == VERSION:
                assert reason is None
            else:  # the checksum is that of the version byte before
                assert reason is (expected or Reason.CHECKSUM)


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (Hello(0, 63), Hello(-1, 63)),
        (Hello(0, 63), Hello(0, 64)),
        (Challenge(0, bytes(NUMBER_BYTES)), Challenge(-1, bytes(NUMBER_BYTES))),
        (Challenge(0, bytes(NUMBER_BYTES)), Challenge(0, bytes(NUMBER_BYTES + 1))),
    ],
)
def test_fields_of_greetings_are_bounded(good: Pdu, bad: Pdu) -> None:
    codec = Codec([Hello, Challenge])
    found = codec.decode(codec.encode(good))
    assert isinstance(found, Packet)
    assert found.pdu == good
    assert isinstance(codec.decode(codec.encode(bad)), Garbage)
