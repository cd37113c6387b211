"""Peers given by name, looked up periodically in a thread."""

import threading
from collections import deque
from typing import Final

from antiphon.core.time import SECOND_NS, Nanoseconds
from antiphon.live.networks import Address, Peers, literal

EVERY_NS: Final = 10 * SECOND_NS
MOST_ADDRESSES: Final = 256
MOST_UNFOUND: Final = 8
"""Names that could not be resolved and are not reported yet."""


class Resolving:
    """The current addresses of a network's names. A name that cannot be resolved keeps its last addresses."""

    def __init__(self, network: Peers, family: int) -> None:
        self._names = [peer for peer in network.peers if literal(peer.host) is None]
        self._resolve = network.resolve
        self._family = family
        self._found: dict[str, list[Address]] = {}
        self._unfound: deque[str] = deque(maxlen=MOST_UNFOUND)
        self._thread: threading.Thread | None = None
        self._next_ns: Nanoseconds = 0
        self._begin()

    @property
    def addresses(self) -> tuple[Address, ...]:
        found = [address for peer in self._names for address in self._found.get(str(peer), ())]
        return tuple(dict.fromkeys(found))[:MOST_ADDRESSES]

    def take_unfound(self) -> list[str]:
        """The names that could not be resolved since the last call."""
        return [self._unfound.popleft() for _ in range(len(self._unfound))]

    def tick(self, now: Nanoseconds) -> None:
        """Start the next round if it is due and the last one has ended."""
        if self._next_ns == 0:
            self._next_ns = now + EVERY_NS
        if now >= self._next_ns and (self._thread is None or not self._thread.is_alive()):
            self._next_ns = now + EVERY_NS
            self._begin()

    def _begin(self) -> None:
        if self._names:
            # A daemon: a name server that never answers must not keep a process from ending.
            self._thread = threading.Thread(target=self._look_up, name="antiphon-names", daemon=True)
            self._thread.start()

    def _look_up(self) -> None:
        for peer in self._names:
            try:
                self._found[str(peer)] = self._resolve(peer.host, peer.port, self._family)[:MOST_ADDRESSES]
            except (OSError, ValueError):
                # The peer is not up yet, or the name server is not, or the name does not exist.
                self._unfound.append(str(peer))
