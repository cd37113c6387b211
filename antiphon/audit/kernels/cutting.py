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
def deal(kinds: Any, senders: Any, numbers: Any, counts: Any, thresholds: Any) -> Any:
    """Pieces of rows that lie within one window: the row, the window, the offset in the row, and the count.

    Rows about no message are left out.
    """
    pieces = 0
    for fill in range(2):
        result = np.empty((4, pieces if fill else 0), np.int64)
        pieces = 0
        for row in range(len(kinds)):
            if kinds[row] <= 1:
                continue
            count = counts[row] if len(counts) else 1
            number, left = numbers[row], count
            while left:
                window = _window(thresholds, senders[row], number)
                size = left
                if window < thresholds.shape[1]:
                    size = min(left, thresholds[senders[row], window] - number + 1)
                if fill:
                    result[0, pieces] = row
                    result[1, pieces] = window
                    result[2, pieces] = count - left
                    result[3, pieces] = size
                pieces += 1
                left -= size
                number += size
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
