"""PDUs as a hostile, mistaken or newer process makes them: from the declared types, and from real ones.

Everything here ends as the bytes of a whole datagram. Fields are drawn from what msgspec knows of a PDU's
types (their bounds, and values at and beyond these), and from the values of PDUs that were observed: a lie
that nearly fits is believed more often than noise. Nothing here knows what a field means.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import Any, Final

import msgspec
from msgspec import inspect

from antiphon.core.ids import Site
from antiphon.core.packing import ADDRESSED, CONTINUING, COUNT, UNFINISHED, Packed, pack
from antiphon.core.wire import HEADER, MAXIMUM_BODY_BYTES, PACKED, Pdu, name_bytes, stamp

LEAST_INT: Final = -(1 << 63)
GREATEST_INT: Final = (1 << 64) - 1
EDGES: Final = tuple(
    sorted(
        {sign * (1 << bits) + step for bits in (0, 7, 8, 16, 31, 32, 46, 53, 62, 63) for sign in (1, -1)
         for step in (-1, 0, 1)}
        | {GREATEST_INT}
    )
)  # fmt: skip
"""Integers at which something may change: signs, powers of two, the limits of MessagePack."""
KEPT: Final = 48
"""Observed values of each field, and observed PDUs of each kind. Raising it costs memory."""
ARCHIVED: Final = 200
"""PDUs of the beginning that may be said again at the end."""
ODD_NAMES: Final = (
    "", " ", "a\x00b", "\x1b[31mred\x1b[0m", "x" * 64, "x" * 65, "é" * 64, "n" * 255, "n" * 300,
    "\U0001f600", "..", "*",
)  # fmt: skip
LONG_LIST: Final = 100
"""A list of this many entries is not made fifty times as long."""
LONG_LISTS: Final = (17, 33, 257, 1024, 1025, 3000)
LONG_BYTES: Final = (1024, 2048 * 8 + 8, 65_536)

_encode = msgspec.msgpack.Encoder(
    enc_hook=lambda value: (
        msgspec.msgpack.Ext(PACKED, bytes(value.wire())) if isinstance(value, Packed) else str(value)
    )
).encode


@cache
def fields_of(kind: type) -> tuple[inspect.Field, ...]:
    """The fields of a Struct and their types, with bounds."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return info.fields


def datagram(sender: Site, code: int, body: bytes) -> bytes:
    """A whole unsealed PDU with this body, as its sender's transport would send it."""
    buffer = bytearray(HEADER.size) + name_bytes(sender) + body
    stamp(buffer, code & 0xFF, 0, 1, 1)
    return bytes(buffer)


class Forge:
    """Draws PDUs. What it draws depends on its random generator and on what it has observed."""

    def __init__(self, kinds: Sequence[type[Pdu]], random: Random, names: Sequence[Site]) -> None:
        self.kinds: Final = tuple(kinds)
        self.random: Final = random
        self._names: Final = tuple(names)
        """Members, honest and not: the names that a lie may speak of."""
        self._observed: dict[type[Pdu], deque[Pdu]] = {}
        self._values: dict[str, deque[Any]] = {}
        self._seen: list[type[Pdu]] = []
        self._sound = False
        """Whether what is being drawn keeps to its bounds."""
        self._depth = 0
        """Lists within lists that are being drawn."""
        self._draws: Final[dict[type, Callable[[Any, str], Any]]] = {
            inspect.IntType: self._int,
            inspect.StrType: self._str,
            inspect.BytesType: self._bytes,
            inspect.BoolType: lambda _type, _name: self.random.random() < 0.5,
            inspect.FloatType: lambda _type, _name: self.random.choice((0.0, -1.5, 1e300, float("nan"))),
            inspect.NoneType: lambda _type, _name: None,
            inspect.VarTupleType: self._list,
            inspect.ListType: self._list,
            inspect.SetType: self._list,
            inspect.FrozenSetType: self._list,
            inspect.TupleType: self._tuple,
            inspect.DictType: self._dict,
            inspect.UnionType: self._union,
            inspect.StructType: self._struct,
            inspect.CustomType: lambda _type, _name: self._packed(),
            inspect.Metadata: lambda type_, name: self._draw(type_.type, name),
        }

    # What was observed

    def observe(self, pdu: Pdu) -> None:
        """Learn from a PDU of an honest member."""
        kind = type(pdu)
        kept = self._observed.get(kind)
        if kept is None:
            kept = self._observed[kind] = deque(maxlen=KEPT)
            self._seen.append(kind)
        kept.append(pdu)
        for name in kind.__struct_fields__:
            self._remember(name, getattr(pdu, name))

    def _remember(self, name: str, value: Any) -> None:
        known = self._values.get(name)
        if known is None:
            known = self._values[name] = deque(maxlen=KEPT)
        known.append(value)
        if type(value) is tuple and value:
            self._remember_item(name, value)

    def _remember_item(self, name: str, value: tuple[Any, ...]) -> None:
        item = self.random.choice(value)
        if isinstance(item, msgspec.Struct):
            for field in item.__struct_fields__:
                self._remember(field, getattr(item, field))
        else:
            self._remember(f"{name}[]", item)

    def sample(self) -> Pdu | None:
        """A PDU that was observed, of any kind alike; None before there is one."""
        if not self._seen:
            return None
        return self.random.choice(self._observed[self.random.choice(self._seen)])

    def observed(self) -> list[Pdu]:
        """What is kept of all kinds."""
        return [pdu for kept in self._observed.values() for pdu in kept]

    # Whole bodies

    def made(self) -> tuple[int, bytes]:
        """A PDU of any kind, its fields drawn from their types; half of them within all bounds."""
        kind = self.random.choice(self.kinds)
        self._sound = self.random.random() < 0.5
        values = [self._field(field) for field in fields_of(kind)]
        body = self._encoded(values) if self._sound else self._body(values)
        self._sound = False
        return kind.code, body

    def altered(self, pdu: Pdu) -> tuple[int, bytes]:
        """A real PDU with one field changed, seldom more."""
        random = self.random
        fields = fields_of(type(pdu))
        values = [getattr(pdu, field.name) for field in fields]
        for _ in range(1 if random.random() < 0.7 else random.randrange(2, 5)):
            if fields:
                place = random.randrange(len(fields))
                values[place] = self._changed(values[place], fields[place])
        return pdu.code, self._body(values)

    def plain(self, pdu: Pdu) -> tuple[int, bytes]:
        """A real PDU as it is."""
        return pdu.code, self._encoded([getattr(pdu, name) for name in pdu.__struct_fields__])

    def newer(self, pdu: Pdu) -> tuple[int, bytes]:
        """A real PDU as a later version may send it: with more fields, or of a kind not known here."""
        random = self.random
        values = [getattr(pdu, name) for name in pdu.__struct_fields__]
        values += [
            random.choice((0, None, "more", b"", (1, 2), {"a": 1})) for _ in range(random.randrange(1, 4))
        ]
        if random.random() < 0.2:
            return random.choice((1, 2, 19, 200, 254, 255)), self._encoded(values)
        return pdu.code, self._encoded(values)

    def flipped(self, code: int, body: bytes) -> tuple[int, bytes]:
        """The same bytes damaged: a bit or a byte changed, cut short, lengthened, or another kind named."""
        random = self.random
        data = bytearray(body)
        deed = random.randrange(6)
        if not data or deed == 0:
            return random.randrange(256), body
        place = random.randrange(min(len(data), 200))
        if deed == 1:
            del data[random.randrange(len(data)) :]
        elif deed == 2:
            data += random.randbytes(random.randrange(1, 12))
        elif deed == 3:
            data[place] = random.choice((0xC0, 0xC1, 0x00, 0xFF, 0x90, 0x80, 0xC7, 0xCF, 0xDC, 0xDD))
        else:
            data[place] ^= 1 << random.randrange(8)
        return code, bytes(data)

    def _body(self, values: list[Any]) -> bytes:
        random = self.random
        chance = random.random()
        if chance < 0.03 and values:
            del values[random.randrange(len(values)) :]
        elif chance < 0.06:
            values += [random.choice((0, None, b"", "x", ()))] * random.randrange(1, 3)
        elif chance < 0.07:
            random.shuffle(values)
        return self._encoded(values)

    def _encoded(self, values: list[Any]) -> bytes:
        try:
            return _encode(values)
        except (OverflowError, UnicodeEncodeError):  # an integer beyond 64 bits: MessagePack has none
            return b"\xc1"

    # Fields

    def _field(self, field: inspect.Field) -> Any:
        known = self._values.get(field.name)
        if known and self.random.random() < 0.6:
            return self.random.choice(known)
        return self._draw(field.type, field.name)

    def _changed(self, value: Any, field: inspect.Field) -> Any:
        """Something near a value, or something else that its type allows, seldom what it does not allow."""
        random = self.random
        chance = random.random()
        if chance < 0.5:
            return self._near(value, field.name)
        return self._field(field) if chance < 0.75 else self._draw(field.type, field.name)

    def _near(self, value: Any, name: str) -> Any:
        random = self.random
        match value:
            case bool():
                return not value
            case int():
                step = random.choice((1, -1, 2, -2, 10, 64, 1000, -1000, 1 << 20, 1 << 40))
                return _clamp(value ^ 1 << random.randrange(50) if random.random() < 0.3 else value + step)
            case str():
                return random.choice(self._names)
            case bytes():
                return self._near_bytes(value)
            case tuple():
                return self._near_list(value, name)
            case dict():
                return self._near_dict(value)
            case Packed():
                return self._packed()
            case msgspec.Struct():
                return self._near_struct(value)
            case _:
                return self._wrong()

    def _near_bytes(self, value: bytes) -> bytes:
        random = self.random
        data = bytearray(value)
        deed = random.randrange(6)
        words = len(data) // 8
        if deed == 0 and data:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        elif deed == 1:
            del data[random.randrange(len(data) + 1) :]
        elif deed == 2:
            data += random.randbytes(random.choice((1, 8, 16)))
        elif deed == 3 and words:
            # Many lists travel as integers of 64 bits: one of them becomes another number.
            place = 8 * random.randrange(words)
            word = random.choice(EDGES) & GREATEST_INT
            data[place : place + 8] = word.to_bytes(8, random.choice(("big", "little")))
        elif deed == 4 and words > 1:
            one, other = (8 * random.randrange(words) for _ in range(2))
            data[one : one + 8], data[other : other + 8] = data[other : other + 8], data[one : one + 8]
        elif words:
            place = 8 * random.randrange(words)
            data += data[place : place + 8]
        return bytes(data)

    def _near_list(self, value: tuple[Any, ...], name: str) -> Any:
        random = self.random
        items = list(value)
        if not items:
            return (self._wrong(),)
        deed, place = random.randrange(6), random.randrange(len(items))
        if deed == 0:
            del items[place]
        elif deed == 1:
            items.append(items[place])
        elif deed == 2:
            items.reverse()
        elif deed == 3:
            items *= random.choice((2, 3, 50 if len(items) < LONG_LIST else 2))
        else:
            items[place] = self._near(items[place], f"{name}[]")
        return tuple(items)

    def _near_dict(self, value: dict[Any, Any]) -> dict[Any, Any]:
        random = self.random
        changed = dict(value)
        if changed and random.random() < 0.6:
            key = random.choice(list(changed))
            changed[key] = self._near(changed[key], "")
        else:
            changed[random.choice(self._names)] = random.choice(list(changed.values()) or [0])
        return changed

    def _near_struct(self, value: msgspec.Struct) -> Any:
        fields = fields_of(type(value))
        values = [getattr(value, field.name) for field in fields]
        place = self.random.randrange(len(fields))
        values[place] = self._changed(values[place], fields[place])
        return tuple(values)

    def _draw(self, kind: inspect.Type, name: str) -> Any:
        if self.random.random() < 0.02 and not self._sound:
            return self._wrong()
        draw = self._draws.get(type(kind))
        return self._wrong() if draw is None else draw(kind, name)

    def _wrong(self) -> Any:
        """Something of a type of its own."""
        return self.random.choice(
            (None, True, 0, -1, 1.5, "", "a", b"", b"\x00" * 8, (), (0,), ((),) * 3, {"a": 1},
             msgspec.msgpack.Ext(PACKED, b""), msgspec.msgpack.Ext(9, b"x"))
        )  # fmt: skip

    def _int(self, kind: inspect.IntType, name: str) -> int:
        random = self.random
        least = kind.ge if kind.ge is not None else LEAST_INT if kind.gt is None else kind.gt + 1
        most = kind.le if kind.le is not None else GREATEST_INT if kind.lt is None else kind.lt - 1
        chance = random.random()
        if self._sound:
            known = self._values.get(name)
            near = random.choice((0, 1, 7, least, most, *known) if known else (0, 1, 7, least, most))
            return min(max(near, least), most) if type(near) is int else least
        if chance < 0.25:
            return random.randrange(8)
        if chance < 0.4:
            known = self._values.get(name)
            near = random.choice(known) if known else 0
            return _clamp(near + random.choice((-1, 1, 5, 300, 1 << 33))) if type(near) is int else 0
        if chance < 0.6:
            return _clamp(random.choice((least - 1, least, least + 1, most - 1, most, most + 1)))
        if chance < 0.8:
            return random.choice(EDGES)
        return random.getrandbits(random.randrange(1, 65))

    def _str(self, kind: inspect.StrType, name: str) -> str:
        random = self.random
        chance = random.random()
        if chance < 0.6 or self._sound:
            return random.choice(self._names)
        if chance < 0.8:
            return random.choice(ODD_NAMES)
        return f"s{random.randrange(100_000)}" + "y" * random.choice((0, 0, 58, 250))

    def _bytes(self, kind: inspect.BytesType, name: str) -> bytes:
        random = self.random
        known = self._values.get(name)
        chance = random.random()
        if self._sound:
            chosen: bytes = random.choice((b"", bytes(8), bytes(16), *(known or ())))
            return chosen
        if known and chance < 0.5:
            value = random.choice(known)
            return self._near_bytes(value) if type(value) is bytes else b""
        if chance < 0.6:
            return b""
        if chance < 0.9:
            return random.randbytes(random.choice((1, 7, 8, 9, 16, 64, 200)))
        filling = random.choice((b"\x00", b"\xff", b"\x01"))
        return filling * random.choice(LONG_BYTES)

    def _length(self, longest: int | None) -> int:
        """Seldom long, and never within another list: that would not fit a datagram, nor memory."""
        random = self.random
        chance = random.random()
        if self._sound:
            return min(random.choice((0, 1, 2, 3)), 3 if longest is None else longest)
        if chance < 0.95 or self._depth > 1:
            return random.choice((0, 1, 1, 2, 3, 5, 9))
        if longest is not None and chance < 0.98:
            return min(longest + random.randrange(2), 3000)
        return random.choice(LONG_LISTS)

    def _list(self, kind: Any, name: str) -> tuple[Any, ...]:
        self._depth += 1
        length = self._length(kind.max_length)
        few = [self._draw(kind.item_type, f"{name}[]") for _ in range(min(length, 12))]
        self._depth -= 1
        return tuple((few * (length // max(1, len(few)) + 1))[:length])

    def _tuple(self, kind: inspect.TupleType, name: str) -> tuple[Any, ...]:
        return tuple(self._draw(item, f"{name}[]") for item in kind.item_types)

    def _dict(self, kind: inspect.DictType, name: str) -> dict[Any, Any]:
        self._depth += 1
        found = self._pairs(kind, name)
        self._depth -= 1
        return found

    def _pairs(self, kind: inspect.DictType, name: str) -> dict[Any, Any]:
        length = self._length(kind.max_length)
        value = self._draw(kind.value_type, f"{name}[]")
        if length > 12:
            return {f"d{place}": value for place in range(length)}
        found: dict[Any, Any] = {}
        for _ in range(length):
            key = self._draw(kind.key_type, f"{name}[]")
            if isinstance(key, (str, int, bytes)):
                found[key] = self._draw(kind.value_type, f"{name}[]")
        return found

    def _union(self, kind: inspect.UnionType, name: str) -> Any:
        return self._draw(self.random.choice(kind.types), name)

    def _struct(self, kind: inspect.StructType, name: str) -> tuple[Any, ...]:
        return tuple(self._field(field) for field in kind.fields)

    def _packed(self) -> Any:
        """Packed bodies: mostly sound ones, and every way in which they can be unsound."""
        random = self.random
        chance = random.random()
        if chance < 0.6 or self._sound:
            bodies = [b"liar.%d" % random.randrange(100)] * random.choice((1, 1, 1, 2, 5))
            whole = random.random() < 0.8
            return pack(bodies, unfinished=not whole, continuing=not whole and random.random() < 0.5)
        if chance < 0.7:
            sets = [None, frozenset(random.sample(self._names, 1)), frozenset(self._names)]
            return pack([b"to some"] * 2, addresses=[random.choice(sets) for _ in range(2)])
        if chance < 0.75:
            return pack([b""] * random.choice((1, 500)))
        return msgspec.msgpack.Ext(random.choice((PACKED, PACKED, 0, 2, 127)), self._torn_batch())

    def _torn_batch(self) -> bytes:
        random = self.random
        flags = random.choice((0, 0, UNFINISHED, CONTINUING, ADDRESSED, UNFINISHED | CONTINUING | ADDRESSED))
        head = COUNT.pack(random.choice((0, 1, 2, 1000, ADDRESSED - 1)) | flags)
        return (head + random.randbytes(random.choice((0, 3, 4, 8, 40))))[random.choice((0, 0, 0, 3)) :]


class Repertoire:
    """What a liar says: inventions, alterations of what it has heard, repetitions, and what is long past."""

    def __init__(self, forge: Forge, *, repeats: bool = False) -> None:
        """With `repeats` it says nothing that was not said before."""
        self._forge = forge
        self._repeats = repeats
        self._archive: list[Pdu] = []
        self.own: deque[Pdu] = deque(maxlen=KEPT)
        """What its own protocol said."""

    def observe(self, pdu: Pdu) -> None:
        self._forge.observe(pdu)
        if len(self._archive) < ARCHIVED:
            self._archive.append(pdu)

    def invent(self) -> tuple[int, bytes]:
        """A code and a body."""
        forge, random = self._forge, self._forge.random
        known = forge.sample()
        if known is None:
            return forge.made()
        chance = random.random()
        if self._repeats:
            if chance < 0.3 and self.own:
                return forge.plain(random.choice(self.own))
            return forge.plain(random.choice(self._archive) if chance < 0.8 else known)
        if chance < 0.4:
            return forge.altered(known)
        if chance < 0.65:
            return forge.made()
        if chance < 0.75:
            return forge.flipped(*forge.altered(known))
        if chance < 0.85:
            return forge.plain(known)
        if chance < 0.95:
            return forge.altered(random.choice(self._archive))
        return forge.newer(known)


def _clamp(value: int) -> int:
    return min(max(value, LEAST_INT), GREATEST_INT)


def fits(body: bytes) -> bool:
    """Whether a transport could have brought it at all."""
    return len(body) < MAXIMUM_BODY_BYTES
