"""The trace's two tables, `events` and `runs`, as Arrow schemas and as Python rows.

A row of `events` is one thing that one site did; a site's rows are ordered by `step`, which counts from 0
without gaps. Times are for latency and display, never for order.
"""

from typing import Final

import msgspec
import pyarrow as pa

from antiphon.core.ids import Group, Site
from antiphon.core.recording import Kind, Property

EVENTS: Final = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("site", pa.string(), nullable=False),
        pa.field("step", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("sender", pa.string()),
        pa.field("number", pa.int64()),
        pa.field("count", pa.int32()),
        pa.field("group", pa.string()),
        pa.field("destinations", pa.list_(pa.string())),
        pa.field("size", pa.int32()),
        pa.field("time_ns", pa.int64()),
    ]
)

RUNS: Final = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("protocol", pa.string()),
        pa.field("promises", pa.list_(pa.string())),
        pa.field("groups", pa.map_(pa.string(), pa.list_(pa.string()))),
        pa.field("parameters", pa.string()),
        pa.field("seed", pa.int64()),
    ]
)


class Event(msgspec.Struct, frozen=True, gc=False):
    """One row of `events`. A row with `count` above 1 covers number, number+1, … in that order."""

    run: str
    site: Site
    step: int
    kind: Kind
    sender: Site | None = None
    number: int | None = None
    count: int | None = None
    group: Group | None = None
    destinations: tuple[Site, ...] | None = None
    size: int | None = None
    time_ns: int | None = None


class Run(msgspec.Struct, frozen=True, gc=False):
    """One row of `runs`: a group connection and what its protocol promised."""

    run: str
    protocol: str | None = None
    promises: tuple[Property, ...] = ()
    groups: dict[Group, tuple[Site, ...]] | None = None
    parameters: str | None = None
    seed: int | None = None
