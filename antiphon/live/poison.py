"""What a member could not handle: the latest few PDUs that made it fail, for inspection.

No protocol may raise, whatever a peer sends: that is their contract, and tests check it. If a protocol raises
all the same, the PDU is dropped and counted, the protocol restarts, and the PDU is kept here, so that the
fault can be found.
"""

import time
import traceback
from collections import deque
from typing import Final, NamedTuple

MOST_KEPT: Final = 16
MOST_BYTES: Final = 64 << 10
"""Bytes kept of each. Raising it costs that memory sixteen times."""
POISON: Final = "could not be handled: see Group.poison"


class Poison(NamedTuple):
    """One PDU, or one event, that a member failed on."""

    time_s: float
    """Nanoseconds since 1970."""
    sender: str
    """The member that sent it, or the address if the member is not known."""
    kind: str
    error: str
    """The exception, and where it was raised."""
    data: bytes


class PoisonRing:
    """The latest failures."""

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
