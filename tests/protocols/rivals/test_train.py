"""Guo, section 4.2.3: the train that carries messages, on Totem's ring."""

from antiphon.core.effects import Deliver, Multicast, Send, Stable
from antiphon.core.wire import MAXIMUM_BODY_BYTES
from antiphon.protocols.rivals.totem import PDUS, TotemConfiguration
from antiphon.protocols.rivals.totem.pdus import Message, Token
from antiphon.protocols.rivals.totem.validation import makes_sense
from antiphon.sim.sizes import encoded_size
from tests.protocols.harness.totem_group import Group

TRAIN = TotemConfiguration(carries=True, delivery="agreed")


def trains(group: Group) -> list[Token]:
    """The token as it was passed on, by every member in turn."""
    return [
        each.pdu
        for name in group.names
        for each in group.effects[name]
        if isinstance(each, Send) and isinstance(each.pdu, Token)
    ]


def visits(group: Group, count: int) -> None:
    """Let the train go on to some members."""
    for _ in range(count):
        group.step()


def loaded(bodies: bytes = b"x") -> Group:
    """A train that has just left b with a message."""
    group = Group(3, TRAIN)
    group.admit("b", bodies)
    visits(group, 1)
    return group


def test_messages_travel_on_the_train_and_are_not_multicast() -> None:
    group = loaded()
    group.settle()
    for name in group.names:
        assert [each.sender for each in group.effects[name] if isinstance(each, Deliver)] == ["b"]
        said = [each.pdu for each in group.effects[name] if isinstance(each, Multicast)]
        assert not any(isinstance(pdu, Message) for pdu in said)


def test_the_train_delivers_as_it_passes_and_its_sender_takes_the_message_off() -> None:
    group = loaded()
    assert not any(isinstance(each, Deliver) for each in group.effects["c"])
    visits(group, 1)
    assert any(isinstance(each, Deliver) for each in group.effects["c"])
    assert not any(isinstance(each, Stable) for each in group.effects["c"])
    visits(group, 2)  # at a, and back at b
    latest = max(trains(group), key=lambda token: token.token_seq)
    assert latest.cargo == ()
    visits(group, 1)  # the second time at c: the message is not on the train any more
    assert any(isinstance(each, Stable) for each in group.effects["c"])


def test_a_train_takes_on_no_more_than_fits_a_pdu() -> None:
    group = Group(3, TRAIN)
    for _ in range(20):
        group.admit("b", bytes(TRAIN.largest_batch_bytes // 2))
    group.settle()
    assert len([each for each in group.effects["c"] if isinstance(each, Deliver)]) == 20
    assert max(len(token.cargo) for token in trains(group)) > 1
    weigh = encoded_size(PDUS)
    assert max(weigh(token) for token in trains(group)) <= MAXIMUM_BODY_BYTES


def test_a_train_that_makes_no_sense_is_dropped() -> None:
    token = next(token for token in trains(loaded()) if token.cargo)
    assert makes_sense(token, {"a", "b", "c"})
    assert not makes_sense(token, {"a", "c"})
