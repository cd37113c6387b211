"""The knobs of the stability protocols that a group can turn, whichever protocol it has chosen.

They are declared here once. The order `fifo`, its scenario, the command line and what members compare are
made from these declarations.
"""

from dataclasses import dataclass, fields
from typing import Final

from antiphon.core.errors import UsageError
from antiphon.core.knobs import Knobs, knob
from antiphon.core.time import MILLISECOND_NS, Nanoseconds


@dataclass(frozen=True, kw_only=True)
class Tuning(Knobs):
    """The values that a group has chosen."""

    step_ns: Nanoseconds | None = knob(
        None,
        "Nanoseconds between a member's gossips: the pause between rounds unless said otherwise. Raising it "
        "costs time to stability.",
        least=MILLISECOND_NS,
    )
    subset: int = knob(
        1, "Members that a gossip goes to. Raising it costs messages, and saves steps.", least=1
    )
    subgroup: int | None = knob(
        None,
        "Members of a sub-group of a structured protocol: 4 in a tree, the root of the group's size with "
        "s-gossip, unless said otherwise.",
        least=2,
    )
    heads: bool = knob(
        False,
        "With s-coordp and s-train: sub-groups of consecutive members whose heads report to the first "
        "member, instead of a tree as high as the group needs. Costs reports at the first member.",
    )
    controllers: int = knob(
        1,
        "Controllers of a sub-group with s-gossip. Raising it costs gossips, and saves time after a crash.",
        least=1,
    )
    session_share: float = knob(
        0.05,
        "With session: bytes of all members' session messages, as a share of the data's. Raising it costs "
        "bandwidth, and saves time to stability.",
        least=0.001,
    )
    scatter_ns: Nanoseconds = knob(
        0,
        "Nanoseconds over which members scatter their rows with fulldist. Raising it costs time to "
        "stability, and saves queues.",
        least=0,
    )

    @property
    def tuning(self) -> "Tuning":
        """These knobs alone, of an object that has more."""
        return Tuning(**{each.name: getattr(self, each.name) for each in fields(Tuning)})

    def turned(self) -> tuple[str, ...]:
        """The knobs that are not at their defaults."""
        return tuple(each.name for each in fields(Tuning) if getattr(self, each.name) != each.default)

    def require_taken(self, protocol: str, takes: tuple[str, ...], also: tuple[str, ...] = ()) -> None:
        """Raise a sentence about a knob that the protocol does not have; `also` has those of others."""
        for name in self.turned():
            if name not in takes and name not in also:
                having = f"It has: {', '.join(takes)}." if takes else "Leave it out."
                raise UsageError(f"The stability protocol '{protocol}' has no {name}.", hint=having)


UNTUNED: Final = Tuning()
