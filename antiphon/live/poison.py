"""What a member could not handle: the latest few of the PDUs that made it fail, to be looked at.

Whatever a peer sends, no protocol raises: that is their contract, and tests hold them to it. Should one raise
all the same, the PDU is dropped and counted, the member begins anew, and the PDU is kept here, so that the
fault can be found.
"""

import time
import traceback
from collections import deque
from typing import Final, NamedTuple

MOST_KEPT: Final = 16
MOST_BYTES: Final = 64 << 10
"""Bytes of each that are kept. Raising it costs that memory sixteen times."""
POISON: Final = "could not be handled: see Group.poison"


class Poison(NamedTuple):
    """One PDU, or one event, that a member failed on."""

    time_s: float
    """Since 1970."""
    sender: str
    """The member that sent it, or the address where it is not known."""
    kind: str
    error: str
    """What was raised, and where."""
    data: bytes


class PoisonRing:
    """The latest of them."""

    def __init__(self) -> None:
        self._kept: deque[Poison] = deque(maxlen=MOST_KEPT)

    def keep(self, sender: str, kind: str, error: BaseException, data: bytes = b"") -> None:
        where = traceback.extract_tb(error.__traceback__)
        place = f" ({where[-1].filename}:{where[-1].lineno})" if where else ""
        told = f"{type(error).__name__}: {error}{place}"
        self._kept.append(Poison(time.time(), sender, kind, told, data[:MOST_BYTES]))

    def all(self) -> tuple[Poison, ...]:
        """Oldest first."""
        return tuple(self._kept)
