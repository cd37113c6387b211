"""Integrity, duplicates and FIFO order: each delivery is judged by what came before it.

Each delivery counts by itself: a message delivered three times where it does not belong makes three
violations of integrity and two of duplicate. A late duplicate is also below the highest number delivered
before it, and so counts against fifo too.
"""

from antiphon.check import explain
from antiphon.check.history import Delivery, History
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
        for _, step, message in deliveries:
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
    for site, deliveries in history.deliveries.items():
        highest: dict[Site, Delivery] = {}
        for delivery in deliveries:
            _, step, message = delivery
            before = highest.get(message.sender)
            if before is None or message.number >= before.message.number:
                highest[message.sender] = delivery
                continue
            story = explain.fifo(site, before.message, before.step, message, step)
            rows = (witness(site, before.step, before.message), witness(site, step, message))
            violations.append(Violation("fifo", history.run, site, *message, story, rows))
    return violations
