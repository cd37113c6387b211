"""How a process that has opened its sockets waits until it and the others have proved themselves."""

import asyncio
from collections.abc import Callable
from typing import Final

from antiphon.core.time import MILLISECOND_NS, SECOND_NS
from antiphon.live.machine import Machine
from antiphon.live.transport import Transport

PROOF_S: Final = 0.04
"""Time in which processes prove to each other that they are running, before a newcomer starts its
protocol."""
PENDING_NS: Final = 100 * MILLISECOND_NS
"""A newcomer waits if, within this time, a member reported that the newcomer's name may be taken, or an
unproven process sent a datagram."""
MEETING_NS: Final = SECOND_NS
"""Longest such wait: a stranger may never prove itself. Raising it costs time to join."""


async def meet_others(transport: Transport, machine: Machine, goes_on: Callable[[], bool]) -> None:
    """Prove to the others that this process is running, and learn whether they accept it.

    `goes_on` says whether to wait further; it may raise.
    """
    end_ns = machine.now_ns() + MEETING_NS
    while True:
        await asyncio.sleep(PROOF_S)
        is_waiting = transport.is_pending(PENDING_NS) or transport.is_meeting(PENDING_NS)
        if not goes_on() or not is_waiting or machine.now_ns() > end_ns:
            return
