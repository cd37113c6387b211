"""What tests of hostile causal members share."""

from typing import Any

from hypothesis import strategies as st

from antiphon.core.effects import Admitted
from antiphon.core.inputs import Received
from antiphon.core.packing import pack
from antiphon.core.wire import Packet, Pdu
from antiphon.protocols.sco import ScoConfiguration
from antiphon.protocols.sco.pdus import LARGEST_LIFE, Control, Data, Name
from antiphon.protocols.sco.vectors import pack_bitmap, pack_numbers, pack_whole
from tests.protocols.harness.sco_group import CODEC, Group

SMALL = ScoConfiguration(window=2, buffers=4)
lives = st.one_of(st.just(0), st.just(0), st.sampled_from([1, 65536, -1, LARGEST_LIFE - 1, LARGEST_LIFE]))
names = st.builds(Name, st.sampled_from(["a", "b", "c", "d", "z" * 300]), lives, st.booleans(), st.booleans())
noise = st.binary(max_size=12)
targets = st.one_of(
    st.builds(
        lambda one, other: pack_bitmap({1}, 3) + pack_numbers([one, other]),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    noise,
)
bodies = st.lists(st.binary(max_size=3), min_size=1, max_size=3).map(pack)


def data(**changes: Any) -> Data:
    fields: dict[str, Any] = {
        "life": 0, "table": 1, "number": 0, "destinations": pack_bitmap({1}, 3), "places": pack_numbers([0]),
        "csn": pack_whole([0, 0, 0]), "ack": pack_whole([0, 0, 0]), "atomic": 0, "buffers": 9,
        "bodies": pack([b"x"]),
    }  # fmt: skip
    return Data(**(fields | changes))


def control(**changes: Any) -> Control:
    fields: dict[str, Any] = {
        "life": 0, "serial": 1, "number": 0, "table": 1, "targets": pack_bitmap((), 3), "buffers": 9,
        "gone": 0, "ack": pack_whole([0, 0, 0]), "final": True, "members": 3, "atomic": 0,
    }  # fmt: skip
    return Control(**(fields | changes))


def for_b(sent: int, table: int, has_all: int = 1) -> bytes:
    """What a tells b: how many batches it has sent there, which version of b's table it knows."""
    return pack_bitmap({1}, 3) + pack_numbers([sent, table, has_all])


FAR_LIFE = 1 << 60
SILENCE_MS = 2500
"""By then a liar that is silent is missed, and what it has said holds up no member."""


class Stage(Group):
    """A group in which invented members hear nothing."""

    def reaches(self, source: str, target: str, pdu: Pdu) -> bool:
        return target in self.members and super().reaches(source, target, pdu)


def join(*names: str) -> Group:
    """A live group, of which d will lie."""
    group = Stage(4, live=True)
    group.join(*names)
    group.pass_time(200)
    return group


def lie(group: Group, pdu: Pdu, *to: str, sender: str = "d") -> None:
    packet = CODEC.decode(CODEC.encode(pdu))
    assert isinstance(packet, Packet), pdu
    for name in to:
        group.give(name, Received(sender, packet.pdu))
    group.settle()


def control_of(group: Group, sender: str = "d", **changes: Any) -> Control:
    """A control message as that member could send it, with something changed."""
    state = group.members[sender]._state
    table = state.peers.names()
    fields: dict[str, Any] = {
        "life": state.peers.me.life, "serial": 10_000, "number": state.peers.next_number,
        "table": state.peers.version, "targets": pack_bitmap((), len(table)),
        "ack": pack_whole([0] * len(table)), "buffers": 9,
        "gone": state.lives.digest, "final": True, "members": 1 + len(state.peers.present), "atomic": 0,
    }  # fmt: skip
    return Control(**(fields | changes))


def assert_works(group: Group, *names: str) -> None:
    """Messages of all these reach all of them at once."""
    for name in names:
        group.pass_time(40)
        effects = group.send(name, "".join(names))
        admitted = [effect for effect in effects if isinstance(effect, Admitted)]
        assert admitted, effects
        group.pass_time(60)
        for other in names:
            assert f"{name}{admitted[0].number}" in group.delivered(other), (name, other)


def life_of(group: Group, name: str) -> int:
    return group.members[name]._state.peers.me.life
