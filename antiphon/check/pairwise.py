"""Pairwise order: no two sites deliver two messages in different orders.

Weaker than total order: a before b at one site, b before c at a second and c before a at a third is no
violation, as long as no two of these sites deliver two of these messages differently. Only a
site's first delivery of a message counts.
"""

from collections.abc import Sequence
from itertools import combinations, pairwise

from antiphon.check import explain
from antiphon.check.history import Delivery, History
from antiphon.check.verdict import Violation, Witness
from antiphon.core.ids import MessageId


def check_pairwise(history: History) -> list[Violation]:
    """One violation per pair of sites that differ, shown by the first two such messages of the first site."""
    firsts = [(site, _firsts(deliveries)) for site, deliveries in history.deliveries.items()]
    found = []
    for (site, own), (other, others) in combinations(firsts, 2):
        shared = [message for message in own if message in others]
        for first, second in pairwise(shared):
            if others[first].place > others[second].place:
                arc = explain.Arc(site, first, own[first].step, second, own[second].step)
                against = explain.Arc(other, second, others[second].step, first, others[first].step)
                found.append(differing(history.run, arc, against))
                break
    return found


def differing(run: str, arc: explain.Arc, against: explain.Arc) -> Violation:
    """The violation of two sites that deliver two messages in different orders."""
    rows = [
        row
        for each in (arc, against)
        for row in (
            Witness(each.site, each.first_step, *each.first),
            Witness(each.site, each.second_step, *each.second),
        )
    ]
    return Violation("pairwise", run, None, *arc.first, explain.pairwise(arc, against), tuple(rows))


def _firsts(deliveries: Sequence[Delivery]) -> dict[MessageId, Delivery]:
    """The first delivery of each message, in that order."""
    found: dict[MessageId, Delivery] = {}
    for delivery in deliveries:
        found.setdefault(delivery.message, delivery)
    return found
