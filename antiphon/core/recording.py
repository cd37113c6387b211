"""Where a driver records what its sites do; `antiphon.trace` writes it as Parquet."""

from collections.abc import Iterable
from typing import Final, Literal
from typing import Protocol as Interface

from antiphon.core.ids import Group, Site
from antiphon.core.time import Nanoseconds

Kind = Literal["present", "absent", "send", "receive", "deliver", "stable", "discard"]
KINDS: Final[tuple[Kind, ...]] = ("present", "absent", "send", "receive", "deliver", "stable", "discard")

Property = Literal["integrity", "duplicate", "atomicity", "fifo", "causal", "total", "stability", "pairwise"]
PROPERTIES: Final[tuple[Property, ...]] = (
    "integrity",
    "duplicate",
    "atomicity",
    "fifo",
    "causal",
    "total",
    "stability",
)
"""What the audit judges in every run, promised or not, in the order in which they are reported."""
PROMISABLE: Final[tuple[Property, ...]] = (*PROPERTIES, "pairwise")
"""What a protocol can promise. Pairwise order, a weaker form of total order, is judged only where it is."""


class Recorder(Interface):
    """Takes one row per action of a site; the recorder counts each site's steps itself."""

    def record(
        self,
        site: Site,
        kind: Kind,
        time_ns: Nanoseconds,
        sender: Site | None = None,
        number: int | None = None,
        count: int = 1,
        group: Group | None = None,
        destinations: Iterable[Site] | None = None,
        size: int | None = None,
    ) -> None: ...
