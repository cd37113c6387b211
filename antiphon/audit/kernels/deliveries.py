"""Integrity, duplicates and FIFO order: one pass over each site's deliveries.

Each kernel returns the number of violations and stores as many of them as `found` has room for.
"""

from typing import Any

import numpy as np

from antiphon.core.compiled import compiled


@compiled
def find_foreign(
    delivered: Any, starts: Any, destination_set: Any, sets: Any, with_unsent: bool, found: Any
) -> int:
    """Deliveries of messages that were not addressed to the site and, if asked for, of unsent ones."""
    count = 0
    for site in range(len(starts) - 1):
        for place in range(starts[site], starts[site + 1]):
            addressed = destination_set[delivered[place]]
            if (addressed < 0 and with_unsent) or (addressed >= 0 and not sets[addressed, site]):
                if count < len(found):
                    found[count, 0] = place
                count += 1
    return count


@compiled
def find_duplicates(delivered: Any, starts: Any, messages: int, found: Any) -> int:
    """Extra deliveries, each with the first delivery of that message at that site.

    A place noted at an earlier site is before this site's first, so the array need not be cleared between
    sites.
    """
    first = np.full(messages, -1, np.int32)
    count = 0
    for site in range(len(starts) - 1):
        for place in range(starts[site], starts[site + 1]):
            message = delivered[place]
            if first[message] < starts[site]:
                first[message] = place
                continue
            if count < len(found):
                found[count, 0] = place
                found[count, 1] = first[message]
            count += 1
    return count


@compiled
def mark_first(delivered: Any, starts: Any, messages: int) -> Any:
    """Whether each delivery is its site's first of that message."""
    last_site = np.full(messages, -1, np.int32)
    first = np.zeros(len(delivered), np.bool_)
    for site in range(len(starts) - 1):
        for place in range(starts[site], starts[site + 1]):
            if last_site[delivered[place]] != site:
                last_site[delivered[place]] = site
                first[place] = True
    return first


@compiled
def find_overtaken(delivered: Any, starts: Any, sender_starts: Any, found: Any) -> int:
    """Deliveries below the highest number before them, each with the delivery of that highest number.

    Messages are integers ordered by sender and number, so two of one sender compare as their numbers do.
    First deliveries of one step are laid out by number, so that none is below another of its step.
    """
    senders = len(sender_starts) - 1
    sender_of = np.empty(sender_starts[senders], np.int32)
    for sender in range(senders):
        sender_of[sender_starts[sender] : sender_starts[sender + 1]] = sender
    highest = np.full(senders, -1, np.int64)
    count = 0
    for site in range(len(starts) - 1):
        for place in range(starts[site], starts[site + 1]):
            sender = sender_of[delivered[place]]
            before = highest[sender]
            if before < starts[site] or delivered[place] >= delivered[before]:
                highest[sender] = place
                continue
            if count < len(found):
                found[count, 0] = place
                found[count, 1] = before
            count += 1
    return count


@compiled
def first_deliveries(delivered: Any, messages: int) -> Any:
    """Where each message was first delivered, sites in order; -1 if nowhere."""
    first = np.full(messages, -1, np.int32)
    for place in range(len(delivered)):
        if first[delivered[place]] < 0:
            first[delivered[place]] = place
    return first
