"""Integrity, duplicates and fifo order."""

import numpy as np

from antiphon.audit.case import Case, Finding
from antiphon.audit.kernels import deliveries
from antiphon.check import explain
from antiphon.check.verdict import Violation, Witness


def judge_integrity(case: Case) -> Finding:
    log = case.log
    count, found = case.search(
        "integrity",
        lambda found: deliveries.find_foreign(
            log.delivered,
            log.delivery_starts,
            log.destination_set,
            log.sets,
            log.evidence.shows_unsent,
            found,
        ),
        case.weigh_deliveries,
    )
    return count, [_foreign(case, place) for place in found[:, 0].tolist()]


def _foreign(case: Case, place: int) -> Violation:
    log = case.log
    site, step = case.delivered_at(place)
    number = int(log.delivered[place])
    message = log.message_id(number)
    rows = [case.witness(place)]
    if log.send_entry[number] < 0:
        story = explain.unsent(site, step, message)
    else:
        sent_by, sent_step = log.place(int(log.send_entry[number]))
        addressed = log.sets[log.destination_set[number]]
        names = [log.sites[index] for index in np.flatnonzero(addressed).tolist()]
        story = explain.misaddressed(site, step, message, sent_by, sent_step, names)
        rows.append(Witness(sent_by, sent_step, *message))
    return Violation("integrity", log.run.run, site, *message, story, tuple(rows))


def judge_duplicate(case: Case) -> Finding:
    log = case.log
    count, found = case.search(
        "duplicate",
        lambda found: deliveries.find_duplicates(
            log.delivered, log.delivery_starts, log.message_count, found
        ),
        case.weigh_deliveries,
    )
    return count, [_duplicate(case, place, first) for place, first, *_ in found.tolist()]


def _duplicate(case: Case, place: int, first: int) -> Violation:
    site, step = case.delivered_at(place)
    message = case.message_at(place)
    story = explain.duplicate(site, case.delivered_at(first)[1], step, message)
    rows = (case.witness(first), case.witness(place))
    return Violation("duplicate", case.log.run.run, site, *message, story, rows)


def judge_fifo(case: Case) -> Finding:
    lanes = case.lanes
    count, found = case.search(
        "fifo",
        lambda found: deliveries.find_overtaken(lanes.delivered, lanes.starts, case.log.sender_starts, found),
        case.weigh_lanes,
    )
    pairs = [(lanes.place(late), lanes.place(before)) for late, before, *_ in found.tolist()]
    return count, [_overtaken(case, late, before) for late, before in pairs]


def _overtaken(case: Case, late: int, before: int) -> Violation:
    site, step = case.delivered_at(late)
    message = case.message_at(late)
    story = explain.fifo(site, case.message_at(before), case.delivered_at(before)[1], message, step)
    rows = (case.witness(before), case.witness(late))
    return Violation("fifo", case.log.run.run, site, *message, story, rows)
