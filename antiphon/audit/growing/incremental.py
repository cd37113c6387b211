"""An audit that reads only what a trace has gained since the last one: `antiphon audit --state DIR`."""

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from antiphon.audit.growing.arrivals import Arrival, arrivals_of
from antiphon.audit.growing.audit import GrowingAudit, positions_in
from antiphon.audit.growing.store import Store
from antiphon.audit.growing.windows import Mapper, in_process
from antiphon.audit.local import LOCAL_ROWS, is_small
from antiphon.audit.result import AuditResult, Engine
from antiphon.audit.runs import checked_request
from antiphon.audit.violations import empty_folder
from antiphon.core.recording import Property
from antiphon.trace.files import open_trace
from antiphon.trace.growth import Positions, latest, read_stretch, stretches

BATCH_ROWS: Final = 1 << 20
"""Rows taken in at once, about. Raising it costs memory."""


def is_small_growth(folder: Path, state: Path) -> bool:
    """Whether what a trace has gained is soon judged in one process."""
    store = Store(state)
    try:
        known = positions_in(store)
        if not known:
            return is_small([folder])
        gained = latest(folder, known)
        return (
            sum(each.rows for each in gained.values()) - sum(each.rows for each in known.values())
            <= LOCAL_ROWS
        )
    finally:
        store.close()


def audit_incrementally(
    folder: Path,
    state: Path,
    expect: Sequence[Property] | None = None,
    limit: int = 100,
    violations_to: Path | str | None = None,
    only: Sequence[Property] | None = None,
    *,
    mapper: Mapper = in_process,
    engine: Engine = "local",
    size: int | None = None,
) -> AuditResult:
    """Judge a trace with what earlier audits left in `state`; only new rows are read from its files."""
    request = checked_request([str(folder)], expect, only, limit)
    store = Store(state)
    try:
        audit = GrowingAudit(folder, store, request, mapper, size=size)
        known = audit.positions
        if not known:
            open_trace(folder)  # a bad path or a bad file is reported before anything is kept of it
        if violations_to is not None:
            audit.request = request._replace(violations_to=empty_folder(Path(violations_to)))
        while (now := latest(folder, known, BATCH_ROWS)) != known:
            audit.absorb(read_arrivals(folder, known, now, mapper, audit.cell), audit.batch + 1, now)
            known = now
        return audit.verdict(engine)
    finally:
        store.close()


def read_arrivals(folder: Path, known: Positions, now: Positions, mapper: Mapper, cell: int) -> list[Arrival]:
    """The rows between two sets of positions."""

    def arrivals(item: bytes) -> bytes:
        tables = read_stretch(pickle.loads(item))
        batches = (batch for table in tables for batch in table.to_batches())
        return pickle.dumps(list(arrivals_of(batches, cell)))

    items = [pickle.dumps(stretch) for stretch in stretches(folder, known, now)]
    return [arrival for answer in mapper(arrivals, items) for arrival in pickle.loads(answer)]
