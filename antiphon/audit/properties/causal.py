"""Causal order, with precedence by delivery or by receipt."""

from typing import Any

import numpy as np

from antiphon.audit.case import Array, Case, Finding
from antiphon.audit.kernels import causality
from antiphon.audit.log import Log
from antiphon.audit.receipts import by_receipt
from antiphon.check import explain
from antiphon.check.verdict import Violation, Witness
from antiphon.core.recording import KINDS, Property


def judge_causal(case: Case) -> Finding:
    return _judge(case, "causal", case.log)


def judge_causal_receipt(case: Case) -> Finding:
    return _judge(case, "causal-receipt", by_receipt(case.log))


def _judge(case: Case, name: Property, learned: Log) -> Finding:
    """By the precedence of a log whose deliveries are the rows by which sites learn of messages."""
    log, lanes = case.log, case.lanes
    past = _pasts(case, learned)
    ties = lanes.groups, lanes.rows
    count, found = case.search(
        name,
        lambda found: causality.find_early(found, lanes.delivered, lanes.starts, *ties, *past),
        case.weigh_lanes,
    )
    via = np.full((log.message_count if len(found) else 0, 2), -1, np.int64)
    return count, [_early(case, name, learned, place, past, via) for place in np.sort(found[:, 0]).tolist()]


def _pasts(case: Case, log: Log) -> tuple[Array, ...]:
    """The arrays that decide which message precedes which; notes whether any precedes itself."""
    row = case.sent_rows()
    chain, rank, ends, chains = causality.send_ranks(
        log.kinds, log.messages, log.starts, log.send_entry, log.groups, log.rows
    )
    chains, first_home, homes = causality.unsent_chains(log.delivered, log.delivery_starts, chain, chains)
    vectors = np.zeros((int(row.max(initial=-1)) + 1, chains), np.int32)
    entries = (log.kinds, log.messages, log.starts, log.groups)
    known = (row, chain, rank, first_home, homes, vectors)
    if causality.sweep(*entries, ends, *known):
        case.circular = True
        causality.raise_to_fixpoint(*entries, ends, *known)
    return known


def _early(case: Case, name: Property, learned: Log, index: int, past: Any, via: Array) -> Violation:
    """The violation of a delivery in the lanes."""
    log, lanes = case.log, case.lanes
    end = lanes.starts[np.searchsorted(lanes.starts, index, "right")]
    later = causality.find_cause(lanes.delivered, index, end, lanes.groups, lanes.rows, *past)
    effect, cause = int(lanes.delivered[index]), int(lanes.delivered[later])
    links = causality.find_chain(
        learned.kinds, log.messages, log.starts, log.groups, log.rows, log.send_entry, cause, effect, via
    )
    chain = [_link(case, entry, after) for entry, after in links]
    place, cause_place = lanes.place(index), lanes.place(int(later))
    site, step = case.delivered_at(place)
    message, cause_step = log.message_id(effect), case.delivered_at(cause_place)[1]
    story = explain.causal(site, message, step, log.message_id(cause), cause_step, chain)
    rows = [case.witness(place), case.witness(cause_place)]
    for link in chain:
        rows += [
            Witness(link.site, link.before_step, *link.before),
            Witness(link.site, link.after_step, *link.after),
        ]
    return Violation(name, log.run.run, site, *message, story, tuple(dict.fromkeys(rows)))


def _link(case: Case, entry: int, after: int) -> explain.Link:
    log = case.log
    site, step = log.place(entry)
    verb = explain.VERBS[KINDS[log.kinds[entry]]]
    before, following = log.message_id(int(log.messages[entry])), log.message_id(after)
    return explain.Link(site, verb, before, step, following, log.place(int(log.send_entry[after]))[1])
