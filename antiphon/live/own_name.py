"""This process's own name: whether another process has it, and which incarnation of it the members know.

A process that has joined believes only what most members say, since one member may lie.
"""

from typing import Final

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.live.handshake import Answer, Refused
from antiphon.live.host import Host
from antiphon.live.members import SILENCE_NS, Known, Members


class OwnName:
    """The name under which this process is, or wants to be, in its group."""

    def __init__(self, site: Site, boot: int, members: Members, host: Host) -> None:
        self.site: Final = site
        self._boot = boot
        self._members = members
        self._host = host
        self._refusers: dict[Known, Nanoseconds] = {}
        """Members that refuse us because another process has our name, with the time of the refusal."""
        self.joined = False
        """Whether this process has joined: a later process with its name is refused."""
        self.pending_ns: Nanoseconds | None = None
        """When a member last said that our name may be taken and that it is finding out."""

    def yields_to(self, boot: int, answer: Answer) -> bool:
        """Whether a process with our name that answers keeps it. The process that joined first does.

        If neither has joined, the process with the lower boot keeps it. If both joined, in separated parts of
        a network, each keeps it among the members that know it.
        """
        return not self.joined and (answer.joined or boot < self._boot)

    def on_refused(self, known: Known, refused: Refused, now: Nanoseconds) -> None:
        """A member follows another process under our name."""
        if not refused.final:
            self.pending_ns = now
            return
        self._refusers[known] = now
        recent = now - SILENCE_NS
        self._refusers = {
            each: time for each, time in self._refusers.items() if self._members.knows(each) and time > recent
        }
        heard = len(self._members.heard_since(recent))
        if not self.joined or 2 * len(self._refusers) > max(heard, 1):
            self._host.namesake(refused.address if refused.address.isprintable() else "?")

    def on_incarnation(self, known: Known, now: Nanoseconds) -> None:
        """A process knows an incarnation of our name. A joined process restarts above it."""
        incarnation = known.known_incarnation
        if self.joined:
            heard = [each.known_incarnation for each in self._members.heard_since(now - SILENCE_NS)]
            incarnation = sorted(heard, reverse=True)[len(heard) // 2]
        if incarnation:
            self._host.reported(incarnation)
