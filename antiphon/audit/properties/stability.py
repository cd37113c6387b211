"""Stability and safe delivery: declarations, and deliveries, that came too early."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from antiphon.audit.case import Array, Case, Finding
from antiphon.audit.kernels import stability
from antiphon.audit.log import Log
from antiphon.check import explain
from antiphon.check.verdict import Violation, Witness
from antiphon.core.recording import KINDS, Property

DECLARING: Final[Mapping[Property, tuple[int, int]]] = {
    "stability": (KINDS.index("stable"), KINDS.index("discard")),
    "safe": (KINDS.index("deliver"), KINDS.index("deliver")),
}
"""The first and last kind of the rows that are judged."""


def judge_stability(case: Case) -> Finding:
    return _judge(case, "stability")


def judge_safe(case: Case) -> Finding:
    return _judge(case, "safe")


def _judge(case: Case, name: Property) -> Finding:
    log = case.log
    if not log.message_count:
        return 0, []
    entries = stability.first_declarations(
        log.kinds, log.messages, log.starts, log.send_entry, *DECLARING[name]
    )
    if not len(entries):
        return 0, []
    entries = entries[np.argsort(log.messages[entries], kind="stable")]
    receptions = stability.first_receptions(log.kinds, log.messages, log.starts, log.message_count)
    failing = _failing(case, entries, receptions)
    broken = np.flatnonzero(failing >= 0)
    chosen = broken[: case.limits[name]].tolist()
    explained = [
        too_early(log, int(entries[index]), int(failing[index]), receptions, name) for index in chosen
    ]
    return log.weigh(log.messages[entries[broken]]), explained


def _failing(case: Case, entries: Array, receptions: Array) -> Array:
    """For each declaration, the first site by name that did not hold the message yet, or -1."""
    log = case.log
    declaring = (np.searchsorted(log.starts, entries, "right") - 1).astype(np.int32)
    name_rank = np.argsort(np.argsort(np.array(log.sites, dtype=object), kind="stable"))
    by_message = np.searchsorted(log.messages[entries], np.arange(log.message_count + 1))
    failing = np.full(len(entries), -1, np.int32)
    stability.judge_by_own_logs(
        entries,
        declaring,
        log.messages,
        log.starts,
        receptions,
        log.destination_set,
        log.sets,
        case.absent | case.holed,
        name_rank,
        failing,
    )
    row = case.sent_rows()
    sent_by = (np.searchsorted(log.starts, log.send_entry, "right") - 1).astype(np.int32)
    vectors = np.zeros((int(row.max(initial=-1)) + 1, log.logged), np.int32)
    if stability.sweep(log.kinds, log.messages, log.starts, log.groups, row, sent_by, vectors):
        stability.raise_to_fixpoint(log.kinds, log.messages, log.starts, log.groups, row, sent_by, vectors)
    stability.judge_by_happens_before(
        entries,
        declaring,
        by_message,
        log.kinds,
        log.messages,
        log.starts,
        log.groups,
        log.rows,
        row,
        sent_by,
        vectors,
        receptions,
        log.destination_set,
        log.sets,
        case.absent | case.holed,
        name_rank,
        failing,
    )
    return failing


def too_early(log: Log, entry: int, site: int, receptions: Array, name: Property = "stability") -> Violation:
    """A declaration before `site` held the message."""
    declared_by, step = log.place(entry)
    kind = KINDS[log.kinds[entry]]
    message = log.message_id(int(log.messages[entry]))
    rows = [Witness(declared_by, step, *message)]
    at = int(receptions[site, log.messages[entry]]) if site < log.logged else -1
    if at < 0:
        story = explain.never_received(declared_by, kind, step, message, log.sites[site])
    else:
        other, received_step = log.place(int(log.starts[site]) + at)
        story = explain.received_later(declared_by, kind, step, message, other, received_step)
        rows.append(Witness(other, received_step, *message))
    return Violation(name, log.run.run, declared_by, *message, story, tuple(rows))
