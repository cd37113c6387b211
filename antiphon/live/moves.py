"""Members that send from a new address.

A member still gets its PDUs at its old address, until it has answered a challenge at the new address and no
longer answers at the old one.
"""

from typing import Final

from antiphon.core.time import SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.live.challenges import LEAST_BYTES, Challenger
from antiphon.live.members import MOVE_PAUSE_NS, UNANSWERED, Known, Members, Move
from antiphon.live.networks import Address

MOVE_NS: Final = SECOND_NS
"""Time that an old address has to answer before the new address is used. Raising it costs time after a move;
lowering it makes a member on a busy machine easier to mistake for a moved one."""


class Moves:
    """The members that have answered at a new address."""

    def __init__(self, members: Members, challenger: Challenger) -> None:
        self._members = members
        self._challenger = challenger
        self._moving: set[Known] = set()

    def __len__(self) -> int:
        return len(self._moving)

    def tick(self, now: Nanoseconds) -> None:
        for known in list(self._moving):
            self._settle(known, now)

    def on_elsewhere(self, known: Known, pdu: Pdu, address: Address, size: int, now: Nanoseconds) -> None:
        """A member sends from a new address: challenge it there and at the old one."""
        if now - known.moved_ns < MOVE_PAUSE_NS or known.move is not None:
            return
        if size < LEAST_BYTES:
            self._challenger.call(known.boot, pdu, address, size)
        elif self._challenger.press(known, now):
            known.moved_ns = now
            self._challenger.challenge(known.boot, address, size, now)

    def on_answer(self, known: Known, address: Address, now: Nanoseconds) -> None:
        """A member has answered a challenge, at its address or at a new one."""
        if address == known.address:
            known.answered_ns = now
            self.cancel(known)
        elif known.move is None and known.answered_ns < known.moved_ns:
            known.move = Move(address, known.moved_ns)
            self._moving.add(known)

    def cancel(self, known: Known | None) -> None:
        if known is not None:
            known.move = None
            self._moving.discard(known)

    def _settle(self, known: Known, now: Nanoseconds) -> None:
        assert known.move is not None
        address, since = known.move
        if now - since < MOVE_NS or known.unanswered < UNANSWERED:
            self._challenger.press(known, now)
            return
        self.cancel(known)
        known.answered_ns = now
        known.unanswered = 0
        self.cancel(self._members.move(known, address))
