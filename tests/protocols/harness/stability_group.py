"""Small groups under a stability protocol, driven step by step without loss, and what tests ask of them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from antiphon.core.effects import Effect, Multicast, Send, Stable
from antiphon.core.inputs import Received, RoundTriggered, Suspected
from antiphon.core.wire import Pdu


class Tally(NamedTuple):
    """A round as table 4.1 counts it."""

    steps: int
    processed: dict[str, int]
    """Messages sent and received by each member; a multicast is sent and received by its sender too."""


def counts(*numbers: int) -> bytes:
    return np.array(numbers, "<i8").tobytes()


def receive(protocol: Any, sender: str, pdu: Pdu) -> list[Effect]:
    effects: list[Effect] = protocol.handle(0, Received(sender, pdu))
    return effects


def trigger(protocol: Any) -> list[Effect]:
    effects: list[Effect] = protocol.handle(0, RoundTriggered())
    return effects


def suspect(everyone: Mapping[str, Any], gone: str) -> list[tuple[str, Effect]]:
    """All learn of a crash, one after another. Returns what they then want to send."""
    return [
        (site, effect)
        for site, protocol in everyone.items()
        for effect in protocol.handle(0, Suspected(gone))
    ]


def of_kind(effects: list[Effect], kind: type[Any]) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]


def sent(effects: list[Effect]) -> list[tuple[str | None, Pdu]]:
    """The receiver, or None for all, and the PDU."""
    return [
        (effect.to if isinstance(effect, Send) else None, effect.pdu)
        for effect in effects
        if isinstance(effect, Send | Multicast)
    ]


def stable(effects: list[Effect]) -> dict[str, int]:
    return {effect.sender: effect.number + effect.count for effect in of_kind(effects, Stable)}


def play(group: Mapping[str, Any], effects: list[tuple[str, Effect]]) -> Tally:
    """Let everything that was sent arrive, step by step, until nothing is sent any more."""
    processed = dict.fromkeys(group, 0)
    steps = 0
    now = [(site, effect) for site, effect in effects if isinstance(effect, Send | Multicast)]
    while now:
        steps += 1
        following: list[tuple[str, Effect]] = []
        for site, effect in now:
            assert isinstance(effect, Send | Multicast)
            processed[site] += 1 if isinstance(effect, Send) else 2
            for other in _receivers(site, effect, group):
                processed[other] += 1
                following += [(other, answer) for answer in receive(group[other], site, effect.pdu)]
        now = [(site, effect) for site, effect in following if isinstance(effect, Send | Multicast)]
    return Tally(steps, processed)


def play_round(group: Mapping[str, Any], first: str) -> Tally:
    return play(group, [(first, effect) for effect in trigger(group[first])])


def _receivers(site: str, effect: Send | Multicast, group: Mapping[str, Any]) -> Sequence[str]:
    """A member that is not in the group has crashed."""
    if isinstance(effect, Send):
        named: Sequence[str] = [effect.to]
    else:
        named = list(group) if effect.to is None else effect.to
    return [other for other in named if other != site and other in group]
