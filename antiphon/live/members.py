"""The table of members that one member's gate knows: by boot, by name and by address."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from antiphon.core.ids import Site
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.live.networks import Address
from antiphon.live.sealing import ReplayWindow, Seal

MOST_MEMBERS: Final = 1024
MOST_RETIRED: Final = 1024
PRESS_NS: Final = 50 * MILLISECOND_NS
"""Pause between challenges to a member whose name is claimed, or that may have moved."""
MOVE_PAUSE_NS: Final = SECOND_NS
"""Pause between challenges because of one member's new address."""
SILENCE_NS: Final = 5 * SECOND_NS
"""After this silence a member has no vote on refusing us, and its name and its place are free at once."""
UNANSWERED: Final = 5
"""Challenges that a member must leave unanswered before it counts as silent. Time alone is not enough: this
process may have been stopped while the answers waited to be read."""

Identity: TypeAlias = int | tuple[int, Address]
"""The identity of a process: its boot, and without a key its address, too."""


class Known:
    """A member's process, as the gate knows it."""

    __slots__ = (
        "address",
        "answered_ns",
        "boot",
        "heard_ns",
        "identity",
        "known_incarnation",
        "move",
        "moved_ns",
        "number",
        "pressed_ns",
        "received_bytes",
        "seal",
        "site",
        "unanswered",
        "window",
    )

    def __init__(
        self,
        identity: Identity,
        boot: int,
        site: Site,
        address: Address,
        seal: Seal | None,
        top: int,
        now: Nanoseconds,
    ) -> None:
        self.identity = identity
        self.boot: Final = boot
        self.site: Final = site
        self.address = address
        self.seal = seal
        self.window = ReplayWindow(top)
        self.heard_ns = now
        self.answered_ns = now
        """When it last answered a challenge at its address."""
        self.move: Move | None = None
        self.moved_ns = now - MOVE_PAUSE_NS
        """When it was last challenged because it sent from another address."""
        self.pressed_ns = now - PRESS_NS
        """When it was last challenged at its address."""
        self.unanswered = 0
        """Challenges at its address since it last sent something from there."""
        self.received_bytes = 0
        """Bytes received from it."""
        self.number = b""
        """The number of the challenge that is to show its counters; none once a newer counter was
        received."""
        self.known_incarnation = 0
        """The incarnation of our name that it knew when it was let in; 0 if there was none."""


class Move(NamedTuple):
    """A new address at which a member has answered."""

    address: Address
    since_ns: Nanoseconds


class Members:
    """A table of members, bounded; without a key a process is known by its address, too."""

    def __init__(self, *, keyed: bool) -> None:
        self._keyed: Final = keyed
        self._known: OrderedDict[Identity, Known] = OrderedDict()
        """Ordered by the last datagram, the latest at the end."""
        self._sites: dict[Site, Known] = {}
        self._addresses: dict[Address, Known] = {}
        self._retired: OrderedDict[Identity, int] = OrderedDict()
        """Former members, with the newest counter received from each."""

    def __len__(self) -> int:
        return len(self._known)

    @property
    def sites(self) -> Mapping[Site, Known]:
        return self._sites

    @property
    def retired(self) -> int:
        """The number of former members that are remembered."""
        return len(self._retired)

    def all(self) -> Iterable[Known]:
        """All members, the one that has been silent for longest first."""
        return self._known.values()

    def identity(self, boot: int, address: Address) -> Identity:
        return boot if self._keyed else (boot, address)

    def get(self, boot: int, address: Address) -> Known | None:
        """The member of this boot; without a key only if the datagram is from its own address."""
        return self._known.get(boot if self._keyed else (boot, address))

    def named(self, site: Site) -> Known | None:
        return self._sites.get(site)

    def at(self, address: Address) -> Known | None:
        return self._addresses.get(address)

    def knows(self, known: Known) -> bool:
        """Whether a member is still in the table."""
        return self._known.get(known.identity) is known

    def heard(self, known: Known) -> None:
        """A member sent something just now."""
        self._known.move_to_end(known.identity)

    def heard_since(self, time_ns: Nanoseconds) -> list[Known]:
        return [each for each in self._known.values() if each.heard_ns > time_ns]

    def add(self, known: Known) -> Known | None:
        """Add a member. Returns the member of the same identity that it displaces, if there is one.

        Such a process has used two names.
        """
        displaced = self._enlist(known)
        self._sites[known.site] = known
        return displaced

    def move(self, known: Known, address: Address) -> Known | None:
        """Change a member's address. Returns the member that it displaces there, if there is one."""
        self._unlist(known)
        known.address = address
        known.identity = self.identity(known.boot, address)
        return self._enlist(known)

    def remove(self, known: Known) -> None:
        self._unlist(known)
        del self._sites[known.site]
        self._retired[known.identity] = known.window.top
        if len(self._retired) > MOST_RETIRED:
            self._retired.popitem(last=False)

    def recall(self, identity: Identity) -> int:
        """Remove a former member and return its newest counter; -1 if there is none."""
        return self._retired.pop(identity, -1)

    def _enlist(self, known: Known) -> Known | None:
        displaced = self._known.get(known.identity)
        if displaced is not None:
            self.remove(displaced)
        self._known[known.identity] = known
        self._addresses[known.address] = known
        return displaced

    def _unlist(self, known: Known) -> None:
        del self._known[known.identity]
        # Another member may have this address by now.
        if self._addresses.get(known.address) is known:
            del self._addresses[known.address]
