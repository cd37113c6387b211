"""Where a driver records what its sites do; `antiphon.trace` writes it as Parquet."""

from collections.abc import Iterable
from typing import Final, Literal, runtime_checkable
from typing import Protocol as Interface

from antiphon.core.calls import Call
from antiphon.core.ids import Group, Site
from antiphon.core.time import Nanoseconds

Kind = Literal["present", "absent", "send", "receive", "deliver", "stable", "discard"]
KINDS: Final[tuple[Kind, ...]] = ("present", "absent", "send", "receive", "deliver", "stable", "discard")

Property = Literal[
    "integrity",
    "duplicate",
    "atomicity",
    "fifo",
    "causal",
    "total",
    "stability",
    "pairwise",
    "causal-receipt",
    "gap",
    "safe",
    "linearizable",
]
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
OF_EVENTS: Final[tuple[Property, ...]] = (*PROPERTIES, "pairwise", "causal-receipt", "gap", "safe")
"""What is judged by the events of a run."""
PROMISABLE: Final[tuple[Property, ...]] = (*OF_EVENTS, "linearizable")
"""What a protocol can promise. Those beyond `PROPERTIES` are judged only where promised or asked for."""


@runtime_checkable
class LevelRecorder(Interface):
    """A recorder that also takes the levels of acceptance that messages reach."""

    def reach(
        self, site: Site, level: str, time_ns: Nanoseconds, sender: Site, number: int, count: int
    ) -> None: ...


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


@runtime_checkable
class CallRecorder(Interface):
    """A recorder that takes the calls of clients too."""

    def record_call(self, call: Call) -> None:
        """Note a call that was answered, or, at the end of the run, one that was not."""
        ...
