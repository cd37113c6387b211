"""Integrity, duplicates and FIFO order: each delivery is judged by what came before it.

Each delivery counts by itself: a message delivered three times where it does not belong makes three
violations of integrity and two of duplicate. Order is judged by first deliveries, so that a late duplicate
does not count against fifo.
"""

from antiphon.check import explain
from antiphon.check.history import Delivery, History, by_step
from antiphon.check.verdict import Violation, Witness
from antiphon.core.ids import MessageId, Site


def witness(site: Site, step: int, message: MessageId) -> Witness:
    return Witness(site, step, message.sender, message.number)


def check_integrity(history: History) -> list[Violation]:
    """A site delivers a message that no site sent, or that was not addressed to it."""
    return [
        _integrity_violation(history, site, delivery)
        for site, deliveries in history.deliveries.items()
        for delivery in deliveries
        if site not in history.destinations(delivery.message)
        and (delivery.message in history.sendings or history.evidence.shows_unsent)
    ]


def _integrity_violation(history: History, site: Site, delivery: Delivery) -> Violation:
    message, step = delivery.message, delivery.step
    rows = [witness(site, step, message)]
    sending = history.sendings.get(message)
    if sending is None:
        story = explain.unsent(site, step, message)
    else:
        story = explain.misaddressed(site, step, message, sending.site, sending.step, sending.destinations)
        rows.append(witness(sending.site, sending.step, message))
    return Violation("integrity", history.run, site, *message, story, tuple(rows))


def check_duplicate(history: History) -> list[Violation]:
    """A site delivers a message again."""
    violations: list[Violation] = []
    for site, deliveries in history.deliveries.items():
        first: dict[MessageId, int] = {}
        for _, step, message, _ in deliveries:
            if message not in first:
                first[message] = step
                continue
            story = explain.duplicate(site, first[message], step, message)
            rows = (witness(site, first[message], message), witness(site, step, message))
            violations.append(Violation("duplicate", history.run, site, *message, story, rows))
    return violations


def check_fifo(history: History) -> list[Violation]:
    """A site delivers a message with a lower number than an earlier delivery from the same sender."""
    violations: list[Violation] = []
    for site, lane in history.lanes():
        highest: dict[Site, Delivery] = {}
        for step in by_step(lane):
            deliveries = [delivery for row in step for delivery in row]
            for delivery in deliveries:
                before = highest.get(delivery.message.sender)
                if before is not None and delivery.message.number < before.message.number:
                    violations.append(_fifo_violation(history, site, before, delivery))
            for delivery in deliveries:
                before = highest.get(delivery.message.sender, delivery)
                if delivery.message.number >= before.message.number:
                    highest[delivery.message.sender] = delivery
    return violations


def _fifo_violation(history: History, site: Site, before: Delivery, late: Delivery) -> Violation:
    story = explain.fifo(site, before.message, before.step, late.message, late.step)
    rows = (witness(site, before.step, before.message), witness(site, late.step, late.message))
    return Violation("fifo", history.run, site, *late.message, story, rows)
