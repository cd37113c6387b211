"""Causal order, with precedence by delivery or by receipt."""

import numpy as np

from antiphon.audit.case import Array, Case, Finding
from antiphon.audit.kernels import causality
from antiphon.audit.log import Log
from antiphon.audit.precedence import Precedence
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
    log = case.log
    precedence = Precedence(learned, case.lanes)
    found = precedence.early()
    told = found[: case.limits[name]].tolist()
    causes = precedence.causes(told)
    case.circular = case.circular or precedence.is_circular
    via = np.full((log.message_count if told else 0, 2), -1, np.int64)
    explained = [
        _early(case, name, learned, place, cause, via) for place, cause in zip(told, causes, strict=True)
    ]
    return case.weigh_lanes(found[:, None]), explained


def _early(case: Case, name: Property, learned: Log, index: int, later: int, via: Array) -> Violation:
    """The violation of a delivery in the lanes, and of the cause that follows it."""
    log, lanes = case.log, case.lanes
    effect, cause = int(lanes.delivered[index]), int(lanes.delivered[later])
    links = causality.find_chain(
        learned.kinds, log.messages, log.starts, log.groups, log.rows, log.send_entry, cause, effect, via
    )
    chain = [_link(case, entry, after) for entry, after in links]
    place, cause_place = lanes.place(index), lanes.place(later)
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
