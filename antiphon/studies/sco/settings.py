"""Our reading of Tachikawa and Takizawa's paper, and our choices where it is silent.

The paper gives n = 10, a = 1 message of each process per unit of time, k = 4 units without a message to a
process before it gets a control message, r = 4 units for a round, d = 5 destinations. Its curves are lost
from our copy; its sentences about them are compared.

- A unit of time is 10 ms, so a round is a constant delay of 40 ms between any two members.
- 'A round' is one crossing of the network: then three rounds are a message, its answers and the decision.
- Members send a messages per unit at equal intervals, out of step with one another, each to d others drawn at
  random. The sender is never among them: with itself, a message would cross the network d - 1 times, and no
  formula of the paper fits.
- The cost of a message is everything that crosses the network for it: its copies and control messages.
- The delay is from sending until a destination has fully accepted the message: it is in its causal place and
  known to be held by all. It is averaged over the destinations.
- Nothing is lost, except where loss is varied.
- D1 confirms to all destinations in groups of every size, as the paper has it; ours changes that in groups of
  16 and more (`gather_from`).
"""

from collections.abc import Mapping
from typing import Any, Final

from antiphon.analysis.control_schemes import Scheme, Traffic
from antiphon.protocols.sco.pdus import MOST_NAMES

UNIT_MS: Final = 10.0
MEMBERS: Final = 10
RATE: Final = 1.0
DEFERRAL: Final = 4.0
ROUND: Final = 4.0
DESTINATIONS: Final = 5

SCENARIOS: Final[Mapping[Scheme, str]] = {"C0": "sco-c0", "C1": "sco-c1", "D0": "sco-d0", "D1": "sco"}
"""The scheme's name in the text, and ours."""
DEFERRED: Final[tuple[Scheme, ...]] = ("C1", "D1")
"""The schemes that use k."""
CENTRAL: Final[tuple[Scheme, ...]] = ("C0", "C1")
"""The schemes in which senders coordinate, or one member for all."""
HUES: Final[Mapping[str, int]] = {scheme: hue for hue, scheme in enumerate(SCENARIOS)}
"""The colour of each scheme, the same in all figures."""

WINDOW: Final = 64
"""Large enough never to limit: the paper's evaluation has no flow control."""
HEARTBEAT_UNITS: Final = 20.0
"""Silence after which SCO sends a control message to a member, independently of k. The paper has none;
without it the loss of a last message would go unnoticed."""
MESSAGES: Final = 1200
"""Messages of a run, in whole units of time. Enough that the end of a run, where no later message can carry a
confirmation, is a small part of it."""
LEAST_UNITS: Final = 30


def traffic(**changes: Any) -> Traffic:
    """The paper's group, or a variation of it."""
    text: dict[str, Any] = {
        "members": MEMBERS,
        "rate": RATE,
        "deferral": DEFERRAL,
        "round_units": ROUND,
        "destinations": DESTINATIONS,
        "sending": "even",
    }
    return Traffic(**{**text, **changes})


def parameters(scheme: Scheme, group: Traffic, loss: float = 0.0) -> dict[str, Any]:
    """A group as the scenario's parameters, which also select its runs."""
    rate = group.rate * group.members
    knobs: dict[str, Any] = {
        "members": group.members,
        "destinations": group.destinations,
        "own_share": 0.0,
        "sending": group.sending,
        "rate": rate * 1000.0 / UNIT_MS,
        "messages": round(rate * max(LEAST_UNITS, MESSAGES / rate)),
        "delay_ms": group.round_units * UNIT_MS,
        "window": WINDOW,
        "loss": loss,
    }
    if scheme in CENTRAL:
        knobs["coordinated"] = False
    if scheme in DEFERRED:
        knobs["confirm_ms"] = group.deferral * UNIT_MS
    if scheme == "D1":
        knobs["control_ms"] = HEARTBEAT_UNITS * UNIT_MS
        knobs["gather_from"] = MOST_NAMES
    return knobs
