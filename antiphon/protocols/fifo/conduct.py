"""How members acknowledge, announce and hold back, beside the way in which losses are repaired.

The knobs are declared here once. The order `fifo`, its scenario, the command line and what members compare
are made from these declarations.
"""

from dataclasses import dataclass, fields
from typing import Final

from antiphon.core.knobs import Knobs, knob
from antiphon.core.time import MILLISECOND_NS, Nanoseconds

WHEN: Final = ("soon", "late")


@dataclass(frozen=True, kw_only=True)
class Conduct(Knobs):
    """The values that a group has chosen."""

    acknowledgements: str = knob(
        "soon",
        "When members acknowledge messages by themselves: soon, or late, if a few rounds of stability have "
        "not told. Late costs throughput after losses, and saves datagrams.",
        choices=WHEN,
    )
    block_bytes: int | None = knob(
        None,
        "Bytes after which a sender says how far its messages go, although more follow. Raising it costs "
        "latency of repairs that wait for that.",
        least=1,
    )
    most_bytes_s: float | None = knob(
        None,
        "Bytes a second of its own that a member takes from the application; as many as the windows allow if "
        "left out.",
        least=1,
    )
    announce_most_ns: Nanoseconds | None = knob(
        None,
        "Nanoseconds up to which the pauses between announcements of a burst's end double. Raising it costs "
        "latency of a tail that is lost again and again.",
        least=MILLISECOND_NS,
    )

    @property
    def conduct(self) -> "Conduct":
        """These knobs alone, of an object that has more."""
        return Conduct(**{each.name: getattr(self, each.name) for each in fields(Conduct)})


USUAL: Final = Conduct()
