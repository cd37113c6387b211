"""What it costs to know that every destination has a message: four control schemes, in closed form.

Source: T. Tachikawa and M. Takizawa, Distributed Protocol for Selective Intra-group Communication, sections
2.3 and 4. A message goes to d destinations. Under centralised control (C0, C1) each answers its sender, and
the sender informs them all; under distributed control (D0, D1) each informs the sender and all the others. C1
and D1 attach confirmations to data that goes to the same member anyway, and send a control message only after
k units of time without. D1 is SCO.

The text prints 3d messages in three rounds and d^2 in two for C0 and D0, and curves without formulas for the
other two; those are derived here. What a message costs counts every copy that crosses the network. By that
count D0 needs d(d + 1): d copies of the message and then d confirmations from each of d destinations. The
text's d^2 are the confirmations alone; `text_messages` keeps it.

Assumes: every member sends `rate` messages a unit, each to d of the n - 1 others drawn at random; a round
takes r units, always; nothing is lost. A member owes another a confirmation from when it has something new
for it until it next sends to it. Under C1 it has something new with every message that comes from the other
and with every own message to it that all have answered: 2d / (n - 1) times the rate. Under D1 with every
message that comes from the other or that also goes to it, d^2 / (n - 1) times, and with every own message
that does not go to it, (n - 1 - d) / (n - 1) times: a member that is not a destination must learn that it
need not wait for it. A control is sent when a debt is k units old, and members' debts are independent.

The delay is until a message is atomically accepted. Full acceptance also waits until all that precedes it is,
which has no closed form here; it adds more the longer k is. Nor does anything wait for its causal past to
arrive, which without loss holds while k is at most r: what a message follows was sent a round before it, so
all members have heard of it.

With S(t) the chance that a member does not send to a given other within t units, L the integral of S from 0
to k, and g the rate of debts: a debt lasts L on average and ends with a control with chance S(k), so that
there are S(k) / (1/g + L) controls a unit and pair. What comes to be owed meets a debt of age x already with
a density of S(x) / (1/g + L), and then waits only for what is left of k.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from antiphon.core.errors import UsageError

FloatArray = npt.NDArray[np.float64]
Scheme = Literal["C0", "C1", "D0", "D1"]
Sending = Literal["even", "random"]

SCHEMES: Final[tuple[Scheme, ...]] = ("C0", "C1", "D0", "D1")
ROUNDS: Final[dict[Scheme, int]] = {"C0": 3, "C1": 3, "D0": 2, "D1": 2}
"""Network crossings, one after the other, until all destinations know that all have a message."""
STEPS: Final = 4000
"""Steps of an integral. Raising it costs time; twice as many change the fifth digit."""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The text's parameters: n, a, k, r and d, in its units of time."""

    members: int = 10
    rate: float = 1.0
    deferral: float = 4.0
    round_units: float = 4.0
    destinations: int = 5
    sending: Sending = "random"
    """Whether a member's messages come at even distances, as the text's do, or at any time."""

    def __post_init__(self) -> None:
        if not 1 <= self.destinations < self.members:
            raise UsageError("A message goes to one other member at least and to all others at most.")
        if self.rate <= 0 or self.deferral < 0 or self.round_units <= 0:
            raise UsageError("Rate and round must be above 0, and no deferral is shorter than none.")

    @property
    def share(self) -> float:
        """The chance that a message goes to a given other member."""
        return self.destinations / (self.members - 1)

    def silence(self, units: FloatArray) -> FloatArray:
        """S: the chance that a member sends nothing to a given other for this long, from any moment on."""
        if self.sending == "random":
            return np.exp(-self.rate * self.share * units)
        whole = np.floor(self.rate * units)
        part = self.rate * units - whole
        missed = 1.0 - self.share
        return np.asarray(missed**whole * (1.0 - part + part * missed))


# The text's


def text_messages(scheme: Scheme, destinations: int) -> int | None:
    """What sections 2.3 and 4 print; None where they print only a curve."""
    return {"C0": 3 * destinations, "D0": destinations**2}.get(scheme)


# Derived


def messages(scheme: Scheme, traffic: Traffic) -> float:
    """Copies that cross the network for each message of an application, its own included."""
    return traffic.destinations + controls(scheme, traffic)


def controls(scheme: Scheme, traffic: Traffic) -> float:
    """Those of them that carry no data."""
    if scheme == "C0":
        return 2.0 * traffic.destinations
    if scheme == "D0":
        return float(traffic.destinations**2)
    pairs_per_message = (traffic.members - 1) / traffic.rate
    every_units = 1.0 / debts(scheme, traffic) + debt_units(traffic)
    return pairs_per_message * _silent(traffic, traffic.deferral) / every_units


def delay(scheme: Scheme, traffic: Traffic) -> float:
    """Units of time from sending until a destination knows that all have the message, on average."""
    travel = ROUNDS[scheme] * traffic.round_units
    if scheme in ("D0", "D1") and traffic.destinations == 1:
        return traffic.round_units  # It has the message, and there is no other destination.
    if scheme == "D1":
        # What it waits for is the last of the other destinations.
        return travel + longest_wait(scheme, traffic, traffic.destinations - 1)
    if scheme == "C1":
        answers = longest_wait(scheme, traffic, traffic.destinations)
        return travel + answers + longest_wait(scheme, traffic, 1)
    return travel


def ratios(scheme: Scheme, traffic: Traffic) -> tuple[float, float]:
    """Messages and delay as the figures have them: over those of C0."""
    return (
        messages(scheme, traffic) / messages("C0", traffic),
        delay(scheme, traffic) / delay("C0", traffic),
    )


def debts(scheme: Scheme, traffic: Traffic) -> float:
    """g: how often in a unit of time a member gets something new for a given other."""
    if scheme == "D1":
        return traffic.rate * (traffic.destinations * traffic.share + 1.0 - traffic.share)
    return traffic.rate * 2.0 * traffic.share


def debt_units(traffic: Traffic) -> float:
    """L: how long a debt lasts on average."""
    return float(_integral(traffic.silence(_moments(traffic)), traffic))


def longest_wait(scheme: Scheme, traffic: Traffic, members: int) -> float:
    """The mean time until the last of several members has sent what it owes to a given other."""
    if not members or not traffic.deferral:
        return 0.0
    waiting = _still_waiting(scheme, traffic)
    return float(_integral(1.0 - (1.0 - waiting) ** members, traffic))


def _still_waiting(scheme: Scheme, traffic: Traffic) -> FloatArray:
    """The chance that something owed has not been sent after each moment from 0 to k."""
    silence = traffic.silence(_moments(traffic))
    width = traffic.deferral / STEPS
    younger = np.concatenate([[0.0], np.cumsum((silence[1:] + silence[:-1]) / 2 * width)])
    between = 1.0 / debts(scheme, traffic)
    # Either nothing was owed before, or the debt was young enough not to have run out in the meantime.
    return np.asarray(silence * (between + younger[::-1]) / (between + younger[-1]))


def _moments(traffic: Traffic) -> FloatArray:
    return np.linspace(0.0, traffic.deferral, STEPS + 1)


def _integral(values: FloatArray, traffic: Traffic) -> float:
    return float(np.trapezoid(values, dx=traffic.deferral / STEPS))


def _silent(traffic: Traffic, units: float) -> float:
    return float(traffic.silence(np.asarray([units]))[0])
