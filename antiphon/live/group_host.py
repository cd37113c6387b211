"""A group's member as the gate's host: what it tells other processes, and what it learns from the gate."""

import asyncio
from collections.abc import Callable
from typing import Final

from antiphon.core.errors import AntiphonError
from antiphon.core.ids import Group, Site
from antiphon.core.time import MILLISECOND_NS
from antiphon.live import events as ev
from antiphon.live.errors import NameTakenError
from antiphon.live.inbox import Inbox
from antiphon.live.listener import GroupListener
from antiphon.live.machine import Machine
from antiphon.live.member import Member
from antiphon.live.status import Status

LEFT_BEHIND: Final = (
    "It loses too much of what is sent to it at any useful rate, and is not waited for. Look at its link."
)
LARGEST_LEAP: Final = 1 << 44
"""Largest accepted lead of an incarnation, in milliseconds, over the clock: 557 years. Two clocks differ by
at most 292 years (1970 to 2262), so a larger lead is a lie. Any accepted value leaves room for the next
restart's incarnation."""


class GroupHost:
    """The `Host` of a member's gate and transport."""

    def __init__(
        self,
        site: Site,
        group: Group,
        *,
        machine: Machine,
        inbox: Inbox,
        listener: GroupListener,
        notify: Callable[[ev.Happening], None],
        status: Callable[[], Status | None],
        fail: Callable[[AntiphonError], None],
    ) -> None:
        """`notify` passes an event to the application; `fail` ends the membership."""
        self._site: Final = site
        self._group: Final = group
        self._machine: Final = machine
        self._inbox: Final = inbox
        self._listener: Final = listener
        self._notify: Final = notify
        self._fail: Final = fail
        self._member: Member | None = None
        self._reported = 0
        self.status: Final = status

    def open(self, member: Member) -> None:
        """Connect the member, which knows incarnations."""
        self._member = member

    def next_incarnation(self) -> int:
        """An incarnation for this member that is greater than any before.

        Incarnations come from the clock, so a later one is greater without any state on disk. If the clock
        was set back, the incarnation that the others remember decides.
        """
        return max(self._machine.wall_ns() // MILLISECOND_NS, self._reported + 1)

    def incarnation_of(self, site: Site) -> int:
        """The latest incarnation of a site that this member knows; 0 if there is none."""
        return 0 if self._member is None else self._member.incarnation_of(site)

    def reported(self, incarnation: int) -> None:
        """Another member knows an incarnation of this member's name, perhaps a later one."""
        if incarnation > self._machine.wall_ns() // MILLISECOND_NS + LARGEST_LEAP:
            self.refused(
                self._site,
                f"A member knows '{self._site}' under an incarnation that no clock can give, so it may "
                "ignore this process: give it another name.",
            )
            return
        self._reported = max(self._reported, incarnation)
        if self._member is not None:
            # Deferred: the caller is in the middle of receiving.
            asyncio.get_running_loop().call_soon(self._member.outlive, incarnation)

    def refused(self, site: Site, reason: str) -> None:
        """A process cannot be let in, or does not let this member in. The reason is shown to people."""
        self._listener.refused(site, reason)

    def told(self, site: Site, status: Status) -> None:
        """Ignored: a member never asks for a status."""

    def met(self, site: Site, boot: int) -> None:
        """A process was let in. It may be another process than the last of its name."""
        self._inbox.met(site, boot)

    def left_behind(self, site: Site) -> None:
        """A member loses too much at any useful rate. The group does not wait for it."""
        self._notify(ev.LeftBehind(site, LEFT_BEHIND))

    def namesake(self, address: str) -> None:
        """The other members follow another process of this name."""
        error = NameTakenError(
            f"'{self._site}' cannot be in '{self._group}': a process at {address} has that name there.",
            "Give each process a name of its own.",
        )
        asyncio.get_running_loop().call_soon(self._fail, error)
