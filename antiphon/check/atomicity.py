"""Atomicity: a message delivered anywhere is delivered by every destination that could deliver it.

A site without absent rows was present for the whole run, even if it logged nothing, and must have every
message addressed to it that any site delivered. A site with absences may lack messages, but not in the
middle of a spell: its log is cut at each absent row into spells, and within a spell it must have every
message between the spell's first and last delivery. Between means: in the order that the run's deliveries
fix, where total order holds; otherwise in the sender's numbering; in either case within the message's domain.
A short run is often in one order by accident: `in_order=False` judges by numbers in any case, for runs that
did not promise total order. A site whose log has holes is not judged.
"""

from collections.abc import Iterable, Iterator

from antiphon.check import explain
from antiphon.check.deliveries import witness
from antiphon.check.graphs import reachable, reverse, strong_components
from antiphon.check.history import Delivery, Domain, History
from antiphon.check.total import DeliveryGraph, delivery_graph
from antiphon.check.verdict import Violation
from antiphon.core.ids import MessageId, Site

Spell = list[Delivery]
Reversed = dict[MessageId, list[MessageId]]


def check_atomicity(history: History, *, in_order: bool = True) -> list[Violation]:
    """One violation per missing (message, site)."""
    found: dict[tuple[Site, MessageId], Violation] = {}
    for violation in _missing_at_present_sites(history):
        found[_key(violation)] = violation
    graph = delivery_graph(history)
    backward: Reversed = reverse(graph)
    ordered = in_order and all(len(component) == 1 for component in strong_components(graph))
    for site in sorted(history.absentees - history.holed):
        for spell in spells(history, site):
            missing = (
                _missing_in_order(history, site, spell, graph, backward)
                if ordered
                else _missing_in_numbers(history, site, spell)
            )
            for violation in missing:
                found.setdefault(_key(violation), violation)
    return [found[key] for key in sorted(found)]


def _key(violation: Violation) -> tuple[Site, MessageId]:
    assert violation.site is not None
    return violation.site, MessageId(violation.sender, violation.number)


def _missing_at_present_sites(history: History) -> Iterator[Violation]:
    have = {site: {delivery.message for delivery in log} for site, log in history.deliveries.items()}
    for message, (elsewhere, step) in history.delivered.items():
        for site in history.destinations(message) - history.absentees - history.holed:
            if message not in have.get(site, ()):
                story = explain.missing(site, message, elsewhere, step)
                rows = (witness(elsewhere, step, message),)
                yield Violation("atomicity", history.run, site, *message, story, rows)


def spells(history: History, site: Site) -> list[Spell]:
    """The deliveries of each spell of presence. A spell without deliveries has no bounds and is left out."""
    spells: list[Spell] = [[]]
    for place, (step, kind, message, row) in enumerate(history.logs[site]):
        if kind == "absent":
            spells.append([])
        elif kind == "deliver" and message is not None:
            spells[-1].append(Delivery(place, step, message, row))
    return [spell for spell in spells if spell]


def _lacks(history: History, site: Site, spell: Spell) -> set[MessageId]:
    """Messages addressed to the site and delivered somewhere, but not by this site in this spell."""
    delivered_here = {delivery.message for delivery in spell}
    return {
        message
        for message in history.delivered
        if message not in delivered_here and site in history.destinations(message)
    }


def _missing_in_order(
    history: History, site: Site, spell: Spell, graph: DeliveryGraph, backward: Reversed
) -> Iterator[Violation]:
    """Missing messages on a path of consecutive deliveries from the spell's first message to its last."""
    lacks = _lacks(history, site, spell)
    for part in _by_domain(history, spell):
        first, last = part[0], part[-1]
        # The first of several rows of one step is unknown, but it comes before the others.
        after = _reachable_from(graph, (each for each in part if each.step == first.step))
        before = _reachable_from(backward, (each for each in part if each.step == last.step))
        for message in sorted(lacks & after & before):
            elsewhere, step = history.delivered[message]
            story = explain.missing_in_order(
                site, message, first.message, first.step, last.message, last.step, elsewhere, step
            )
            yield _spell_violation(history, site, message, first, last, story)


def _by_domain(history: History, spell: Spell) -> list[Spell]:
    parts: dict[Domain, Spell] = {}
    for delivery in spell:
        parts.setdefault(history.domains.get(delivery.message), []).append(delivery)
    return list(parts.values())


def _reachable_from(graph: DeliveryGraph | Reversed, starts: Iterable[Delivery]) -> set[MessageId]:
    found: set[MessageId] = set()
    for start in starts:
        if start.message not in found:
            found |= reachable(graph, start.message)
    return found


def _missing_in_numbers(history: History, site: Site, spell: Spell) -> Iterator[Violation]:
    """Missing messages whose number lies between two messages of their sender that the spell holds."""
    least: dict[tuple[Site, Domain], Delivery] = {}
    greatest: dict[tuple[Site, Domain], Delivery] = {}
    for delivery in spell:
        message = delivery.message
        key = message.sender, history.domains.get(message)
        if key not in least or message.number < least[key].message.number:
            least[key] = delivery
        if key not in greatest or message.number > greatest[key].message.number:
            greatest[key] = delivery
    for message in sorted(_lacks(history, site, spell)):
        key = message.sender, history.domains.get(message)
        lower, upper = least.get(key), greatest.get(key)
        if lower and upper and lower.message.number < message.number < upper.message.number:
            elsewhere, step = history.delivered[message]
            story = explain.missing_in_numbers(
                site, message, lower.message, lower.step, upper.message, upper.step, elsewhere, step
            )
            yield _spell_violation(history, site, message, lower, upper, story)


def _spell_violation(
    history: History, site: Site, message: MessageId, one: Delivery, other: Delivery, story: str
) -> Violation:
    elsewhere, step = history.delivered[message]
    rows = (
        witness(site, one.step, one.message),
        witness(site, other.step, other.message),
        witness(elsewhere, step, message),
    )
    return Violation("atomicity", history.run, site, *message, story, rows)
