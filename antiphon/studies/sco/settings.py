"""How Tachikawa and Takizawa's text is read, and what was chosen where it is silent.

The text gives n = 10, a = 1 message of each process a unit of time, k = 4 units without a message to a
process before a control message goes to it, r = 4 units for a round, d = 5 destinations. Its curves are lost
from our copy; the sentences about them are what is compared.

- A unit of time is 10 ms, so that a round is a delay of 40 ms between any two members, always the same.
- 'A round' is once across the network: that is how three of them hold a message, answers and the decision.
- Members send a messages a unit at even distances, out of step with one another, each to d others drawn at
  random. The sender is never among them: with itself, a message would cross the network d - 1 times, and no
  formula of the text fits.
- A message costs all that crosses the network for it: its copies, and control messages.
- The delay is from sending until a destination has fully accepted the message: it is in its causal place and
  known to be held by all. It is averaged over the destinations.
- Nothing is lost, except where loss is what is varied.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from antiphon.analysis.control_schemes import Scheme, Traffic

UNIT_MS: Final = 10.0
MEMBERS: Final = 10
RATE: Final = 1.0
DEFERRAL: Final = 4.0
ROUND: Final = 4.0
DESTINATIONS: Final = 5

SCENARIOS: Final[Mapping[Scheme, str]] = {"C0": "sco-c0", "C1": "sco-c1", "D0": "sco-d0", "D1": "sco"}
"""The scheme's name in the text, and ours."""
DEFERRED: Final[tuple[Scheme, ...]] = ("C1", "D1")
"""Those for which k means anything."""
HUES: Final[Mapping[str, int]] = {scheme: hue for hue, scheme in enumerate(SCENARIOS)}
"""Each scheme has its colour, the same in all figures."""

WINDOW: Final = 64
"""Large enough never to be felt: the text has no flow control in its evaluation."""
HEARTBEAT_UNITS: Final = 20.0
"""SCO's control message to whoever got nothing at all for so long, beside what k is about. The text has none;
without it the loss of a last message would go unnoticed."""
MESSAGES: Final = 1200
"""How many are sent in a run, in whole units of time: the end of a run, which nothing follows that could take
a confirmation along, is a small part of it."""
LEAST_UNITS: Final = 30


def traffic(**changes: Any) -> Traffic:
    """The text's group, or one that differs from it."""
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
    """A group as the scenario's knobs have it; the same ones name its runs when they are looked for."""
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
    if scheme in DEFERRED:
        knobs["confirm_ms"] = group.deferral * UNIT_MS
    if scheme == "D1":
        knobs["control_ms"] = HEARTBEAT_UNITS * UNIT_MS
    return knobs


def fixed(values: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    """Values as axes of one point each."""
    return {name: (value,) for name, value in values.items()}
