"""Gaps: numbers that a site lacks between those that it delivered, where no send row accounts for them.

For logs without send rows, in which atomicity cannot be judged. A gap is a stretch of consecutive numbers of
one sender that lies between two numbers which the site delivered in one spell of presence, and of which it
delivered none in any spell. Numbers with a send row are atomicity's concern and end a stretch. A site whose
log has holes is not judged: the missing rows may be deliveries.
"""

from collections.abc import Iterator
from itertools import pairwise

from antiphon.check import explain
from antiphon.check.atomicity import spells
from antiphon.check.deliveries import witness
from antiphon.check.history import Delivery, History
from antiphon.check.verdict import Violation
from antiphon.core.ids import MessageId, Site


def check_gap(history: History) -> list[Violation]:
    """One violation per gap, named by its first number."""
    found: dict[tuple[Site, MessageId], Violation] = {}
    for site in history.deliveries:
        if site not in history.holed:
            for violation in _gaps(history, site):
                found.setdefault((site, MessageId(violation.sender, violation.number)), violation)
    return [found[key] for key in sorted(found)]


def _gaps(history: History, site: Site) -> Iterator[Violation]:
    have = {delivery.message for delivery in history.deliveries[site]}
    accounted = have | history.sendings.keys()
    for spell in spells(history, site):
        for sender in sorted({delivery.message.sender for delivery in spell}):
            own = {each.message.number: each for each in reversed(spell) if each.message.sender == sender}
            yield from _between(history, site, sender, own, accounted)


def _between(
    history: History, site: Site, sender: Site, own: dict[int, Delivery], accounted: set[MessageId]
) -> Iterator[Violation]:
    """The gaps among the numbers that one spell has of one sender."""
    lower, upper = own[min(own)], own[max(own)]
    known = sorted(
        message.number
        for message in accounted
        if message.sender == sender and lower.message.number <= message.number <= upper.message.number
    )
    for before, after in pairwise(known):
        if after > before + 1:
            first = before + 1
            story = explain.gap(
                site, lower.message, lower.step, upper.message, upper.step, first, after - first
            )
            rows = tuple(witness(site, each.step, each.message) for each in (lower, upper))
            yield Violation("gap", history.run, site, sender, first, story, rows)
