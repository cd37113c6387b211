"""A liar in a live group, in a process of its own: it joins as any member does, and then sends raw bodies.

    python -m tests.fuzz.liar GROUP ORDER SERVICE SEED PDUS RATE KIND [KEY]

It says `ready` on standard output, waits for a line, sends a number of PDUs at a rate, says how many,
and ends without a word to the group. What it sends goes through its own transport, which has proved itself to
the others, with a key if there is one: so all of it passes the gate under its own name.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from random import Random
from typing import Any, Final

import antiphon
from antiphon.core.inputs import Received
from antiphon.core.wire import Codec, Pdu
from antiphon.live.counters import Counters
from antiphon.live.group import Group
from antiphon.live.handshake import Terms
from antiphon.live.keys import KeyRing
from antiphon.live.networks import Loopback
from antiphon.live.orders import ORDERS, make_order
from antiphon.live.status import Status
from antiphon.live.transport import Transport
from tests.fuzz.pdus import Forge, Repertoire, fits
from tests.fuzz.plans import MEMBER, STALE, STRANGER

LIAR: Final = "liar"
SITES: Final = ("m0", "m1", "m2")
GROUP: Final = "all"
"""The group of total-across that everyone is in."""
PAUSE_S: Final = 0.005
MEETING_S: Final = 20.0


class Raw:
    """Something to send that no codec has made; a transport asks for no more of a PDU than its code."""

    def __init__(self, code: int, body: bytes) -> None:
        self.code = code
        self.body = body


def speak_raw(transport: Transport) -> None:
    """Let a transport send raw bodies, too."""
    framer = transport._framer
    encode: Callable[..., bool] = framer.encode

    def encode_raw(pdu: Any, *rest: Any) -> bool:
        if not isinstance(pdu, Raw):
            return encode(pdu, *rest)
        del framer._buffer[framer._body_begins :]
        framer._buffer += pdu.body
        return True

    vars(framer)["encode"] = encode_raw


class Liar:
    """Draws what to say, and says it to all or to one."""

    def __init__(self, order: str, seed: int, kind: str) -> None:
        self.random: Final = Random(seed)
        forge = Forge(ORDERS[order].pdus, self.random, (*SITES, LIAR))
        self.repertoire: Final = Repertoire(forge, repeats=kind == STALE)
        self._heard = 0

    def hear(self, pdu: Pdu) -> None:
        self._heard += 1
        if self._heard % 3 == 0:
            self.repertoire.observe(pdu)

    def say(self, transport: Transport) -> None:
        code, body = self.repertoire.invent()
        if not fits(body):
            return
        raw: Any = Raw(code, body)
        if self.random.random() < 0.5:
            transport.multicast(raw)
        else:
            transport.send(self.random.choice(SITES), raw)


class Stranger:
    """The liar's host where it takes no part: asked and told by its gate, it does nothing."""

    def incarnation_of(self, _site: str) -> int:
        return 0

    def reported(self, _incarnation: int) -> None: ...
    def refused(self, _site: str, _reason: str) -> None: ...
    def left_behind(self, _site: str) -> None: ...
    def namesake(self, _address: str) -> None: ...
    def met(self, _site: str, _boot: int) -> None: ...
    def status(self) -> None: ...
    def told(self, _site: str, _status: Status) -> None: ...


async def lie(transport: Transport, liar: Liar, pdus: int, rate: float, look: Callable[[], None]) -> int:
    """Send as many as asked for, about as fast as asked for."""
    loop = asyncio.get_running_loop()
    begin, said = loop.time(), 0
    while said < pdus:
        due = min(pdus, int((loop.time() - begin) * rate) + 1)
        for _ in range(min(due - said, 64)):
            liar.say(transport)
            said += 1
        look()
        await asyncio.sleep(PAUSE_S if said >= due else 0)
    return said


async def wait_for_word() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def as_member(group: Group, liar: Liar, pdus: int, rate: float) -> int:
    await group.__aenter__()
    assert group._transport is not None
    assert group._member is not None
    if group.order == "total-across":
        await group.enter(GROUP)
    member, handle = group._member, group._member._handle

    def listen(now: int, event: Any) -> Any:
        if isinstance(event, Received):
            liar.hear(event.pdu)
        return handle(now, event)

    member._handle = listen
    reading = asyncio.create_task(_read(group))
    speak_raw(group._transport)
    await wait_for_word()
    said = await lie(group._transport, liar, pdus, rate, lambda: None)
    reading.cancel()
    return said


async def _read(group: Group) -> None:
    async for _ in group.batches():
        pass


async def as_stranger(transport: Transport, liar: Liar, pdus: int, rate: float) -> int:
    loop = asyncio.get_running_loop()

    def look() -> None:
        transport.tick(int(loop.time() * 1e9))
        for _, pdu, _ in transport.receive(64):
            liar.hear(pdu)

    deadline = loop.time() + MEETING_S
    while not set(SITES) <= set(transport.addresses) and loop.time() < deadline:
        look()
        await asyncio.sleep(PAUSE_S)
    speak_raw(transport)
    await wait_for_word()
    return await lie(transport, liar, pdus, rate, look)


def main() -> None:
    name, order, service, seed, pdus, rate, kind, *rest = sys.argv[1:]
    keys = KeyRing((bytes.fromhex(rest[0]),)) if rest else None
    liar = Liar(order, int(seed), kind)
    sequencer = SITES[0] if order == "sequencer" else None
    chosen = service if order == "total" else None

    async def work() -> int:
        if kind == STRANGER:
            agreed = make_order(order, {"sequencer": sequencer, "service": chosen}).fingerprint()
            transport = Transport(
                site=LIAR, group=name, codec=Codec(ORDERS[order].pdus), network=Loopback(), keys=keys,
                counters=Counters(), host=Stranger(), terms=Terms(agreed),
            )  # fmt: skip
            return await as_stranger(transport, liar, int(pdus), float(rate))
        assert kind in (MEMBER, STALE)
        group = antiphon.join(
            name, name=LIAR, order=order, sequencer=sequencer, service=chosen, key=keys, network="loopback"
        )
        return await as_member(group, liar, int(pdus), float(rate))

    said = asyncio.run(work())
    print(said, flush=True)
    os._exit(0)  # silence, without a goodbye


if __name__ == "__main__":
    main()
