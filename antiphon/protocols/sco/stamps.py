"""Our own vectors: csn, how far the causal past of our next batch reaches, and ack, what we have accepted."""

from antiphon.protocols.sco.peer import Batch, Peer, Vector
from antiphon.protocols.sco.peers import PeerTable


class Stamps:
    """The vectors that the next own batch carries.

    Entries of csn rise (the paper's CSN). One falls only if it repeated the claim of another member that a
    peer had sent what it never sent.
    """

    __slots__ = ("_ack_copy", "_csn_copy", "_peers", "acks", "csn", "fell")

    def __init__(self, peers: PeerTable) -> None:
        self._peers = peers
        self.begin()

    def begin(self) -> None:
        """A new life has accepted nothing."""
        self.csn: Vector = {}
        self.acks: Vector = {}
        """The paper's AL_ij."""
        self.fell = False
        """Whether an entry of csn has fallen."""
        self._csn_copy: Vector | None = None
        self._ack_copy: Vector | None = None

    def follow(self, batch: Batch) -> None:
        """Whatever we send from now on follows an accepted batch, and what that one follows."""
        csn = self.csn
        sender = batch.sender
        if batch.end > csn.get(sender, 0):
            self._raise(sender, batch.end)
        for peer, number in batch.csn.items():
            if number > csn.get(peer, 0):
                self._raise(peer, number)

    def follow_moved(self, batch: Batch) -> None:
        """Follow what a batch follows, as far as that has come; entries may have fallen below it."""
        for peer, number in batch.csn.items():
            known = min(number, peer.stream.frontier)
            if known > self.csn.get(peer, 0):
                self._raise(peer, known)

    def _raise(self, peer: Peer, number: int) -> None:
        """Raise an entry that is below; not to a number that was found to be a lie, nor for ourselves."""
        if peer is self._peers.me:
            return
        frontier = peer.stream.frontier
        if frontier < number <= peer.claims.lie:
            number = frontier
            if number <= self.csn.get(peer, 0):
                return
        self.csn[peer] = number
        peer.claims.csn_version = self._peers.version
        self._csn_copy = None

    def take_back(self, peer: Peer, number: int) -> None:
        """What we follow of a peer from that number on was never sent."""
        claimed = self.csn.get(peer, 0)
        if claimed > number:
            peer.claims.lie = max(peer.claims.lie, claimed)
            self.csn[peer] = number
            self.fell = True
            self._csn_copy = None

    def acknowledge(self, batch: Batch) -> None:
        """We have accepted a batch."""
        if batch.end > self.acks.get(batch.sender, 0):
            self.acks[batch.sender] = batch.end
            self._ack_copy = None

    def csn_now(self) -> Vector:
        """csn as it stands, in a copy that never changes."""
        if self._csn_copy is None:
            self._csn_copy = dict(self.csn)
        return self._csn_copy

    def acks_now(self) -> Vector:
        """The same of ack."""
        if self._ack_copy is None:
            self._ack_copy = dict(self.acks)
        return self._ack_copy

    def drop(self, peer: Peer) -> None:
        """A life is forgotten."""
        self.csn.pop(peer, None)
        self.acks.pop(peer, None)
        self._csn_copy = self._ack_copy = None
