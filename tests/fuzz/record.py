"""`python -m tests.fuzz.record`: keep datagrams of every kind of PDU, as this version of the wire sends them.

A later version that still reads this one must read all of them, to the same values: `tests/kept/wire-N.json`
is for that, and is written once for each version. To write it anew for a version that is in use would hide
what that version can no longer read.
"""

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from antiphon.core.packing import Packed
from antiphon.core.wire import VERSION, Codec, Packet, Pdu
from antiphon.live.orders import ORDERS
from antiphon.live.transport import TRANSPORT_PDUS
from tests.fuzz.arena import LIAR
from tests.fuzz.pdus import Forge, datagram
from tests.fuzz.plans import MEMBER, draw_plan
from tests.fuzz.run import Performance

KEPT: Final = Path(__file__).parent.parent / "kept"
EXAMPLES: Final = 2
"""Of each kind."""
GROUPS: Final = 12
"""Peaceful groups of each order whose traffic is looked at."""
TRIES: Final = 3000
LONGEST: Final = 600
"""Bytes of an example, so that the file stays small."""
TRANSPORT: Final = "transport"
KINDS: Final[dict[str, tuple[type[Pdu], ...]]] = {
    **{name: order.pdus for name, order in ORDERS.items()},
    TRANSPORT: TRANSPORT_PDUS,
}


def plain(value: Any) -> Any:
    """A field's value as JSON can tell it."""
    match value:
        case bytes():
            return {"bytes": value.hex()}
        case Packed():
            return {"bodies": [body.hex() for body in value]}
        case msgspec.Struct():
            return [plain(getattr(value, name)) for name in value.__struct_fields__]
        case tuple() | list():
            return [plain(item) for item in value]
        case frozenset() | set():
            return sorted(plain(item) for item in value)
        case dict():
            return [[plain(key), plain(item)] for key, item in value.items()]
        case _:
            return value


def examples(order: str) -> dict[type[Pdu], list[Pdu]]:
    """PDUs of every kind: from honest members where they say such a thing in peace, else made up."""
    found: dict[type[Pdu], list[Pdu]] = {kind: [] for kind in KINDS[order]}
    forge = Forge(KINDS[order], Random(1), ("m0", "m1", LIAR))
    for seed in range(GROUPS if order != TRANSPORT else 0):
        plan = replace(draw_plan(order, seed), liar=MEMBER, pdus=0, restarts=1)
        performance = Performance(plan, None, None)
        performance.play()
        for pdu in performance.observed():
            forge.observe(pdu)
            _keep(found, pdu)
    codec = Codec(KINDS[order])
    for _ in range(TRIES):
        made = codec.decode(datagram(LIAR, *forge.made()))
        if isinstance(made, Packet):
            _keep(found, made.pdu)
    return found


def _keep(found: dict[type[Pdu], list[Pdu]], pdu: Pdu) -> None:
    kept = found[type(pdu)]
    if len(kept) < EXAMPLES and pdu not in kept and len(Codec([type(pdu)]).encode(pdu)) <= LONGEST:
        kept.append(pdu)


def record() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for order, kinds in KINDS.items():
        codec = Codec(kinds)
        for kind, kept in examples(order).items():
            assert kept, f"no example of {kind.__name__}"
            for pdu in kept:
                data = codec.encode(pdu, group=1, boot=2, counter=3, sender="m0")
                told = {"order": order, "kind": kind.__name__, "values": plain(pdu)}
                rows.append(told | {"datagram": data.hex()})
    return rows


def main() -> None:
    """Kinds that the file has stay as they are; new kinds of PDU, which a version may get, are added."""
    place = KEPT / f"wire-{VERSION}.json"
    rows: list[dict[str, Any]] = json.loads(place.read_text()) if place.exists() else []
    kept = {(row["order"], row["kind"]) for row in rows}
    rows += [row for row in record() if (row["order"], row["kind"]) not in kept]
    place.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    print(f"{len(rows)} datagrams in {place}")


if __name__ == "__main__":
    main()
