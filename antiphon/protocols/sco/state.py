"""What the parts of a member share: the peer table, what is known of lives, own vectors, timers, presence.

Each part changes only through its own methods. None is ever replaced, so that others may keep it.
"""

from collections import Counter
from typing import Final

from antiphon.core.effects import Absent, CancelTimer, Effect, Present
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.probe import Probe
from antiphon.protocols.sco.lives import Lives
from antiphon.protocols.sco.pdus import ScoConfiguration
from antiphon.protocols.sco.peer import Peer
from antiphon.protocols.sco.peers import PeerTable
from antiphon.protocols.sco.stamps import Stamps
from antiphon.protocols.timers import Timers

CONTROL: Final = "control"
CONFIRM: Final = "confirm"
REPAIR: Final = "repair"
TIMERS: Final = (CONTROL, CONFIRM, REPAIR)


class ControlTimers(Timers):
    """The timers of a member, and when each peer is due a control message."""

    __slots__ = ("_confirm_ns", "_effects", "_peers")

    def __init__(self, effects: list[Effect], peers: PeerTable, confirm_ns: Nanoseconds) -> None:
        super().__init__(effects.append)
        self._effects = effects
        self._peers = peers
        self._confirm_ns = confirm_ns

    def confirm_soon(self, now: Nanoseconds, peer: Peer) -> None:
        """Have a control message sent to a peer within `confirm_ns`."""
        if peer.gone or peer is self._peers.me:
            return
        if peer.outgoing.due_ns is None:
            peer.outgoing.due_ns = now + self._confirm_ns
            self.arm(now, CONFIRM, self._confirm_ns)

    def cancel(self) -> None:
        """Stop all timers."""
        self._effects += [CancelTimer(name) for name in TIMERS]
        self.clear()


class Presence:
    """Whether this member takes part, and whether the application knows."""

    __slots__ = ("_counts", "_effects", "absent", "cut_off", "taking_part")

    def __init__(self, effects: list[Effect], counts: Counter[str]) -> None:
        self._effects = effects
        self._counts = counts
        self.absent = False
        """Whether the trace has this member as absent."""
        self.begin()

    def begin(self) -> None:
        self.taking_part = False
        self.cut_off = False
        """Whether this life has to end: it is over for others, or this member may be cut off."""

    def take_part(self) -> None:
        """Take part from the group's beginning on."""
        self.taking_part = True

    def resume(self, *, absent: bool) -> None:
        """Begin as a member that the trace has as absent, or has never had."""
        self.absent = absent

    def enter(self) -> None:
        self.taking_part = True
        self.absent = False
        self._effects.append(Present())

    def leave(self) -> None:
        self.taking_part = False
        if not self.absent:
            self.absent = True
            self._effects.append(Absent())

    def cut(self) -> None:
        """End this life once the input has been handled."""
        self.cut_off = True

    def note_hole(self) -> None:
        """Messages that others have were not delivered here: a spell of presence ends, the next begins."""
        self._counts["holes"] += 1
        if self.taking_part:
            self._effects += (Absent(), Present())


class State:
    """The parts, and what concerns several of them."""

    def __init__(self, site: Site, configuration: ScoConfiguration) -> None:
        self.configuration: Final = configuration
        self.effects: Final[list[Effect]] = []
        """What the input at hand has caused so far."""
        self.counts: Final[Counter[str]] = Counter()
        self.peers: Final = PeerTable(site, configuration.buffers)
        self.lives: Final = Lives(site)
        self.stamps: Final = Stamps(self.peers)
        self.timers: Final = ControlTimers(self.effects, self.peers, configuration.confirm_ns)
        self.presence: Final = Presence(self.effects, self.counts)
        self.probe: Final = Probe()

    def begin(self, now: Nanoseconds, life: int, next_number: int) -> None:
        """A life begins; it remembers nothing of the lives before, but continues their numbers."""
        self.peers.begin(now, life, next_number)
        self.lives.begin()
        self.stamps.begin()
        self.presence.begin()

    def gathers(self) -> bool:
        """Whether the group is large: destinations confirm to senders alone, and members watch neighbours."""
        return 1 + len(self.peers.present) >= self.configuration.gather_from

    def is_final(self) -> bool:
        """Whether the streams of departed lives are complete here, and nothing of them waits to move."""
        return self.lives.final and not any(peer.stream.queue for peer in self.peers.departed)

    def everyone_is_final(self) -> bool:
        """Whether the same is known of all present peers, and we have all that they hold for us."""
        digest = self.lives.digest
        return self.is_final() and all(
            peer.view.is_final(digest) and peer.view.satisfied == digest
            for peer in self.peers.present.values()
        )

    def ignore(self) -> None:
        """Count a PDU that was malformed."""
        self.counts["ignored"] += 1
