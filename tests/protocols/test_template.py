"""The template protocol between fakes; also the template of a protocol's tests.

What to keep when copying: a table of named cases for what the protocol promises, one test per kind of wrong
(the caller's, the peer's), and a property test that lets hypothesis play the network.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.effects import (
    Absent,
    Admitted,
    Arrived,
    Deliver,
    Effect,
    Multicast,
    Present,
    Rejected,
)
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Admit, Departed, Received, Returned, Start
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.template import Message, Template, TemplateConfiguration

MEMBERS = ("a", "b", "c")


class Foreign(Pdu, frozen=True):
    """A PDU of some other protocol."""


def started(site: str = "b", *, next_number: int = 0, largest_batch: int = 64) -> Template:
    member = Template(site, MEMBERS, TemplateConfiguration(largest_batch=largest_batch))
    member.handle(0, Start(next_number=next_number))
    return member


def delivered(effects: list[Effect]) -> list[tuple[str, int]]:
    return [(effect.sender, effect.number) for effect in effects if isinstance(effect, Deliver)]


def test_an_admitted_message_is_numbered_multicast_and_delivered_in_that_order() -> None:
    assert started("a", next_number=4).handle(0, Admit((b"x", b"yz"))) == [
        Admitted(4, 2, 3),
        Multicast(Message(4, (b"x", b"yz"))),
        Deliver("a", 4, (b"x", b"yz")),
    ]


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        pytest.param([0, 1, 2], [0, 1, 2], id="in order"),
        pytest.param([0, 0, 1, 1], [0, 1], id="duplicates are dropped"),
        pytest.param([1, 0, 2], [1, 2], id="a late one is dropped"),
        pytest.param([0, 3], [0, 3], id="a lost one is passed over"),
    ],
)
def test_each_sender_is_delivered_in_order(arrivals: list[int], expected: list[int]) -> None:
    member = started()
    effects = [
        effect for number in arrivals for effect in member.handle(0, Received("a", Message(number, (b"",))))
    ]
    assert delivered(effects) == [("a", number) for number in expected]
    assert [effect.number for effect in effects if isinstance(effect, Arrived)] == expected


def test_senders_do_not_wait_for_one_another() -> None:
    member = started()
    assert delivered(member.handle(0, Received("a", Message(7, (b"",))))) == [("a", 7)]
    assert delivered(member.handle(0, Received("c", Message(0, (b"",))))) == [("c", 0)]


def test_a_batch_that_is_too_large_is_rejected_and_takes_no_number() -> None:
    member = started("a", largest_batch=1)
    assert [type(effect) for effect in member.handle(0, Admit((b"x", b"y")))] == [Rejected]
    assert member.handle(0, Admit((b"x",)))[0] == Admitted(0, 1, 1)


def test_absence_and_return_are_noted() -> None:
    member = started()
    assert member.handle(0, Departed()) == [Absent()]
    assert member.handle(0, Returned()) == [Present()]


def test_a_restarted_member_is_present_again_and_reuses_no_number() -> None:
    member = Template("a", MEMBERS, TemplateConfiguration())
    assert member.handle(0, Start(incarnation=1, next_number=9)) == [Present()]
    assert member.handle(0, Admit((b"x",)))[0] == Admitted(9, 1, 1)


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(Admit(()), id="no body"),
        pytest.param(Admit((b"x",), destinations=frozenset({"a"})), id="chosen destinations"),
        pytest.param(Admit((b"x",), group="g"), id="a named group"),
        pytest.param(Start(), id="a second start"),
    ],
)
def test_misuse_raises_and_changes_nothing(event: Admit | Start) -> None:
    member = started("a")
    with pytest.raises(UsageError):
        member.handle(0, event)
    assert member.handle(0, Admit((b"x",)))[0] == Admitted(0, 1, 1)


def test_misuse_before_the_start_and_at_construction() -> None:
    with pytest.raises(UsageError, match="start"):
        Template("a", MEMBERS, TemplateConfiguration()).handle(0, Admit((b"x",)))
    with pytest.raises(UsageError, match="members"):
        Template("z", MEMBERS, TemplateConfiguration())
    with pytest.raises(UsageError, match="batch"):
        TemplateConfiguration(largest_batch=0)


@pytest.mark.parametrize(
    ("sender", "pdu"),
    [
        pytest.param("z", Message(0, (b"x",)), id="a stranger"),
        pytest.param("b", Message(0, (b"x",)), id="someone who claims to be us"),
        pytest.param("a", Message(-1, (b"x",)), id="a negative number"),
        pytest.param("a", Message(0, ()), id="no body"),
        pytest.param("a", Foreign(), id="another protocol's PDU"),
    ],
)
def test_a_peers_nonsense_is_counted_and_dropped(sender: str, pdu: Pdu) -> None:
    member = started()
    assert member.handle(0, Received(sender, pdu)) == []
    assert member.ignored == 1


def test_the_pdu_survives_the_wire() -> None:
    codec = Codec([Message])
    packet = codec.decode(codec.encode(Message(3, (b"x", b""))))
    assert isinstance(packet, Packet)
    assert packet.pdu == Message(3, (b"x", b""))


@given(st.lists(st.tuples(st.sampled_from(["a", "c"]), st.integers(0, 12), st.integers(1, 3)), max_size=40))
def test_whatever_the_network_does_deliveries_rise(arrivals: list[tuple[str, int, int]]) -> None:
    member = started()
    reached = {"a": -1, "c": -1}
    for sender, number, count in arrivals:
        for effect in member.handle(0, Received(sender, Message(number, (b"",) * count))):
            if isinstance(effect, Deliver):
                assert effect.number > reached[effect.sender]
                reached[effect.sender] = effect.number + len(effect.bodies) - 1
