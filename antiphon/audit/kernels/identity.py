"""The integer of each message.

Messages are numbered by sender and then by number, so that their order as integers is their order as ids.
While a sender's numbers have few holes, its messages get one integer per number, and finding one is an
addition; the integers of holes are unused. Where the numbers are sparse, as hostile ones may be, only the
numbers that occur get an integer, found by binary search.
"""

from typing import Any

import numpy as np

from antiphon.core.compiled import compiled


@compiled
def note_numbers(senders: Any, numbers: Any, counts: Any, kinds: Any, least: Any, greatest: Any) -> int:
    """Widen each sender's range of numbers; return how many entries the rows expand to."""
    entries = 0
    for row in range(len(kinds)):
        if kinds[row] <= 1:
            entries += 1
            continue
        count = counts[row] if len(counts) else 1
        sender = senders[row]
        least[sender] = min(least[sender], numbers[row])
        greatest[sender] = max(greatest[sender], numbers[row] + count - 1)
        entries += count
    return entries


@compiled
def expand_rows(
    senders: Any,
    numbers: Any,
    counts: Any,
    kinds: Any,
    bases: Any,
    entry_kinds: Any,
    entry_messages: Any,
    begin: int,
) -> int:
    """Write one entry per message of each row from `begin` on; return the index of the next entry."""
    entry = begin
    for row in range(len(kinds)):
        kind = kinds[row]
        if kind <= 1:
            entry_kinds[entry] = kind
            entry_messages[entry] = -1
            entry += 1
            continue
        first = numbers[row] + bases[senders[row]]
        for offset in range(counts[row] if len(counts) else 1):
            entry_kinds[entry] = kind
            entry_messages[entry] = first + offset
            entry += 1
    return entry


@compiled
def find_sends(kinds: Any, messages: Any, starts: Any, homes: Any, send_entry: Any) -> None:
    """The entry of each message's send: the sender's own first send entry, else the first of all.

    `homes` gives the site of each message's sender, or -1. Other send entries of a message are repetitions,
    and their kind is cleared.
    """
    for site in range(len(starts) - 1):
        for entry in range(starts[site], starts[site + 1]):
            if kinds[entry] != 2:
                continue
            message = messages[entry]
            known = send_entry[message]
            if known < 0:
                send_entry[message] = entry
            elif homes[message] == site and known < starts[site]:
                send_entry[message] = entry
                kinds[known] = 0
            else:
                kinds[entry] = 0


@compiled
def collect_deliveries(
    kinds: Any, messages: Any, starts: Any, delivered: Any, entries: Any, delivery_starts: Any
) -> None:
    """The delivery entries alone, site by site."""
    place = 0
    for site in range(len(starts) - 1):
        delivery_starts[site] = place
        for entry in range(starts[site], starts[site + 1]):
            if kinds[entry] == 4:
                delivered[place] = messages[entry]
                entries[place] = entry
                place += 1
    delivery_starts[len(starts) - 1] = place


def empty(type_: Any = np.int64) -> Any:
    """An array without elements, for an absent column."""
    return np.empty(0, type_)
