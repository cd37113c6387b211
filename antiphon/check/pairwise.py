"""Pairwise order: no two sites deliver two messages in different orders.

Weaker than total order: a before b at one site, b before c at a second and c before a at a third is no
violation, as long as no two of these sites deliver two of these messages differently. Only a
site's first delivery of a message counts, rows of one step are unordered, and domains are judged apart.
"""

from collections.abc import Mapping
from itertools import combinations

from antiphon.check import explain
from antiphon.check.history import Delivery, History
from antiphon.check.verdict import Violation, Witness
from antiphon.core.ids import MessageId


def check_pairwise(history: History) -> list[Violation]:
    """One violation per pair of sites that differ, shown by the first two such messages of the first site."""
    found = []
    for (site, own), (other, others) in combinations(history.firsts.items(), 2):
        there = {delivery.message: delivery for delivery in others}
        shared = [delivery for delivery in own if delivery.message in there]
        differing_pair = _first_difference(history, shared, there)
        if differing_pair is not None:
            first, second = differing_pair
            arc = explain.Arc(site, first.message, first.step, second.message, second.step)
            last, earlier = there[first.message], there[second.message]
            against = explain.Arc(other, earlier.message, earlier.step, last.message, last.step)
            found.append(differing(history.run, arc, against))
    return found


def _first_difference(
    history: History, shared: list[Delivery], there: Mapping[MessageId, Delivery]
) -> tuple[Delivery, Delivery] | None:
    """The first delivery that the other site delivers before one of those before it; the last of these."""
    for index, second in enumerate(shared):
        for first in reversed(shared[:index]):
            if (
                history.domains.get(first.message) == history.domains.get(second.message)
                and first.is_before(second)
                and there[second.message].is_before(there[first.message])
            ):
                return first, second
    return None


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
