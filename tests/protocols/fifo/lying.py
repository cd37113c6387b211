"""What tests of members that lie share."""

from collections.abc import Iterable
from typing import Any

import msgspec

from antiphon.core.packing import pack
from antiphon.core.wire import Codec, Pdu
from antiphon.protocols.fifo import PDUS
from antiphon.protocols.fifo.group import Peer
from antiphon.protocols.fifo.pdus import Extent, Mark, Status
from antiphon.protocols.fifo.streams import Stream
from tests.protocols.harness.fifo_group import Group
from tests.protocols.harness.gate import pass_gate

FAR = 1 << 40
CODEC = Codec(PDUS)
ONE = pack([b"x"])


def claim(site: str, held: int = 0, **more: Any) -> Extent:
    """What a liar says of a site's messages."""
    return msgspec.structs.replace(Extent(site, 0, True, True, 0, held, 0, 0), **more)


def lie(
    members: Group,
    liar: str,
    to: Iterable[str],
    *extents: Extent,
    marks: tuple[Mark, ...] = (),
    serial: int = 0,
) -> None:
    """A status of the liar's, in everyone's view, that goes to some."""
    for target in to:
        group = members.members[target]._group
        peer = group.peers[liar]
        own = claim(liar, peer.stream.expected, stable=peer.stream.stable)
        said = (*extents, *([own] if all(extent.site != liar for extent in extents) else []))
        status = Status(0, peer.spell, serial or peer.serial + 1, group.view.number, said, marks)
        received = pass_gate(CODEC, liar, status)
        assert received is not None
        members.give(target, received)


def stream(members: Group, of: str, at: str) -> Stream:
    return members.members[at]._group.peers[of].stream


def peer(members: Group, of: str, at: str) -> Peer:
    return members.members[at]._group.peers[of]


def all_deliver(members: Group, sender: str, names: str, span_ms: float = 400) -> bool:
    """Whether a new message reaches these members."""
    before = members.admitted[sender]
    members.admit(sender)
    members.pass_time(span_ms)
    return members.admitted[sender] > before and all(
        f"{sender}{before}" in members.delivered(name) for name in names
    )


def statuses(members: Group, name: str) -> list[Pdu]:
    return [pdu for source, _, pdu in members.said(Status) if source == name]
