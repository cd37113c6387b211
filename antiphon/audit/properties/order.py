"""Total order and pairwise order."""

import numpy as np

from antiphon.audit.case import Array, Case, Finding
from antiphon.audit.kernels import order
from antiphon.check import explain
from antiphon.check.pairwise import differing
from antiphon.check.verdict import Violation, Witness


def judge_total(case: Case) -> Finding:
    components = case.order.components
    return len(components), [_entangled(case, each) for each in components[: case.limits["total"]]]


def _entangled(case: Case, component: Array) -> Violation:
    log = case.log
    arcs = [_arc(case, *places) for places in case.order.cycle(component)]
    rows = [
        row
        for arc in arcs
        for row in (
            Witness(arc.site, arc.first_step, *arc.first),
            Witness(arc.site, arc.second_step, *arc.second),
        )
    ]
    members = case.order.nodes[component]
    least, size = log.message_id(int(members[0])), log.weigh(members)
    story = explain.total(arcs, size)
    return Violation("total", log.run.run, None, *least, story, tuple(dict.fromkeys(rows)), size)


def _arc(case: Case, one: int, other: int) -> explain.Arc:
    site, step = case.delivered_at(one)
    return explain.Arc(site, case.message_at(one), step, case.message_at(other), case.delivered_at(other)[1])


def judge_pairwise(case: Case) -> Finding:
    """By arrays, two sites at a time: few runs promise pairwise order, and they have few sites."""
    log, count = case.log, 0
    explained: list[Violation] = []
    by_site = _lanes_by_site(case)
    at = np.full(log.message_count, -1, np.int64)
    for site in range(log.logged):
        for other in range(site + 1, log.logged):
            found = _first_difference(case, by_site[site], by_site[other], at)
            count += found is not None
            room = case.room("pairwise", len(explained))
            if found is not None and room != 0:
                explained.append(_differing(case, *found))
    return count, explained


def _lanes_by_site(case: Case) -> list[dict[int, tuple[int, int]]]:
    """For each site its lanes, by domain, as ranges."""
    lanes, domains = case.lanes, case.log.domains
    found: list[dict[int, tuple[int, int]]] = [{} for _ in range(case.log.logged)]
    for lane, site in enumerate(lanes.sites.tolist()):
        begin, end = int(lanes.starts[lane]), int(lanes.starts[lane + 1])
        if begin < end:
            domain = int(domains[lanes.delivered[begin]]) if len(domains) else 0
            found[site][domain] = (begin, end)
    return found


def _first_difference(
    case: Case, own: dict[int, tuple[int, int]], others: dict[int, tuple[int, int]], at: Array
) -> tuple[list[int], list[int]] | None:
    """The places of two messages at both sites that differ about them. `at` is all -1 before and after."""
    lanes, found = case.lanes, []
    for domain in own.keys() & others.keys():
        mine, theirs = np.arange(*own[domain]), np.arange(*others[domain])
        at[lanes.delivered[theirs]] = theirs
        shared = mine[at[lanes.delivered[mine]] >= 0]
        elsewhere = at[lanes.delivered[shared]]
        first, second = order.first_difference(shared, elsewhere, lanes.groups, lanes.rows)
        at[lanes.delivered[theirs]] = -1
        if first >= 0:
            pair = [first, second]
            found.append(
                (
                    [lanes.place(int(place)) for place in shared[pair]],
                    [lanes.place(int(place)) for place in elsewhere[pair]],
                )
            )
    return min(found, key=lambda pair: pair[0][1], default=None)


def _differing(case: Case, own: list[int], others: list[int]) -> Violation:
    """Two deliveries at one site, and those of the same messages in reverse order at another."""
    return differing(case.log.run.run, _arc(case, *own), _arc(case, *reversed(others)))
