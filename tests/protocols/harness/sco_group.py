"""A group of SCO members driven by hand, for the tests of the selective causal order."""

from random import Random

from antiphon.core.inputs import Start
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.sco import PDUS, Sco, ScoConfiguration
from antiphon.protocols.sco.peer import Peer
from tests.protocols.harness.staging import StagedGroup

KNOBS = ScoConfiguration()
CODEC = Codec(PDUS)


class Group(StagedGroup[Sco]):
    """A group whose PDUs travel through the codec. A `live` one's members begin alone, when they `join`."""

    is_heard_out = True

    def __init__(self, size: int = 3, knobs: ScoConfiguration = KNOBS, *, live: bool = False) -> None:
        super().__init__("abcdefgh"[:size])
        self.knobs = knobs
        if live:
            self.incarnations = dict.fromkeys(self.names, 1)
            self.members = {name: self.build(name) for name in self.names}
        else:
            self.assemble()

    def build(self, name: str) -> Sco:
        members = (name,) if self.incarnations[name] else self.names
        return Sco(name, members, self.knobs, Random(name))

    def join(self, *names: str) -> None:
        """Begin live, knowing no other member."""
        for name in names:
            self.give(name, Start(self.incarnations[name]))

    def peer(self, name: str, other: str) -> Peer:
        """A member as another one sees it."""
        return self.members[name]._state.peers.present[other]

    def arrive(self, source: str, target: str, pdu: Pdu) -> None:
        packet = CODEC.decode(CODEC.encode(pdu, sender=source))
        assert isinstance(packet, Packet), packet
        super().arrive(source, target, packet.pdu)
