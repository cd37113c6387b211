"""Rows dealt out to windows, and what FIFO order needs to know of the rows before."""

from typing import Any

import numpy as np

from antiphon.core.compiled import compiled


@compiled
def _window(thresholds: Any, sender: int, number: int) -> int:
    """The first window whose threshold for this sender is not below the number."""
    low, high = 0, thresholds.shape[1]
    while low < high:
        middle = (low + high) // 2
        if thresholds[sender, middle] < number:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def windows_of(thresholds: Any, senders: Any, numbers: Any) -> Any:
    """The window of each message."""
    found = np.empty(len(senders), np.int64)
    for index in range(len(senders)):
        found[index] = _window(thresholds, senders[index], numbers[index])
    return found


@compiled
def _is_within(thresholds: Any, sender: int, number: int, window: int) -> bool:
    """Whether `_window` finds this window."""
    if window > 0 and thresholds[sender, window - 1] >= number:
        return False
    return bool(window == thresholds.shape[1] or thresholds[sender, window] >= number)


@compiled
def deal(kinds: Any, senders: Any, numbers: Any, counts: Any, thresholds: Any) -> Any:
    """Pieces of rows that lie within one window, by window, otherwise in their order.

    For each piece: the row, the window, the offset in the row, the count, and how many messages and how many
    deliveries precede it. Rows about no message are left out.
    """
    # The first turn counts each window's pieces, the second puts them in their places.
    free = np.zeros(thresholds.shape[1] + 2, np.int64)
    recent = np.zeros(len(thresholds), np.int64)
    for fill in range(2):
        result = np.empty((6, free[-1] if fill else 0), np.int64)
        position = place = 0
        for row in range(len(kinds)):
            if kinds[row] <= 1:
                continue
            count = counts[row] if len(counts) else 1
            delivers = kinds[row] == 4
            number, offset = numbers[row], 0
            while offset < count:
                window = recent[senders[row]]
                if not _is_within(thresholds, senders[row], number + offset, window):
                    window = _window(thresholds, senders[row], number + offset)
                    recent[senders[row]] = window
                size = count - offset
                if window < thresholds.shape[1]:
                    size = min(size, thresholds[senders[row], window] - number - offset + 1)
                if fill:
                    piece = free[window]
                    result[0, piece] = row
                    result[1, piece] = window
                    result[2, piece] = offset
                    result[3, piece] = size
                    result[4, piece] = position + offset
                    result[5, piece] = place + offset if delivers else -1
                    free[window] += 1
                else:
                    free[window + 1] += 1
                offset += size
            position += count
            place += count if delivers else 0
        if not fill:
            free = np.cumsum(free)
    return result


@compiled
def note_highest(
    kinds: Any, senders: Any, numbers: Any, counts: Any, steps: Any, highest: Any, highest_step: Any
) -> Any:
    """For each delivery row that lies below one before it: the highest number so far, and its step; else -1.

    `highest` and `highest_step` hold what came before these rows, by sender, and are brought up to date.
    """
    above = np.full((2, len(kinds)), -1, np.int64)
    for row in range(len(kinds)):
        if kinds[row] != 4:
            continue
        sender = senders[row]
        last = numbers[row] + (counts[row] if len(counts) else 1) - 1
        if numbers[row] < highest[sender]:
            above[0, row] = highest[sender]
            above[1, row] = highest_step[sender]
        if last > highest[sender]:
            highest[sender] = last
            highest_step[sender] = steps[row]
    return above
