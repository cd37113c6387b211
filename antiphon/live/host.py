"""What the gate and the transport need from the process that they serve."""

from typing import Protocol as Interface

from antiphon.core.ids import Site
from antiphon.live.status import Status


class Host(Interface):
    """The process that a gate guards: a member's `GroupHost`, or a `Bystander`."""

    def incarnation_of(self, site: Site) -> int:
        """The latest known incarnation of a site; 0 if there is none."""
        ...

    def reported(self, incarnation: int) -> None:
        """A member knows an incarnation of our name."""

    def met(self, site: Site, boot: int) -> None:
        """A process was let in under its name. None of its PDUs has been passed on yet."""

    def status(self) -> Status | None:
        """This member's status, for a proven process that asks; None for no answer."""
        ...

    def told(self, site: Site, status: Status) -> None:
        """The status of another member, which we asked for."""

    def refused(self, site: Site, reason: str) -> None:
        """A process was refused, or refuses us. The reason is shown to people."""

    def left_behind(self, site: Site) -> None:
        """A member cannot keep up at any useful rate. The group does not wait for it."""

    def namesake(self, address: str) -> None:
        """The other members follow a process at that address under our name: this process must end."""


class Bystander:
    """The `Host` of a process that is no member: it has no incarnation, and nothing depends on who is met."""

    def incarnation_of(self, site: Site) -> int:  # noqa: ARG002
        return 0

    def status(self) -> Status | None:
        return None

    def reported(self, incarnation: int) -> None: ...
    def refused(self, site: Site, reason: str) -> None: ...
    def met(self, site: Site, boot: int) -> None: ...
    def told(self, site: Site, status: Status) -> None: ...
    def left_behind(self, site: Site) -> None: ...
    def namesake(self, address: str) -> None: ...
