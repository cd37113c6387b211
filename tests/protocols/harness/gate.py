"""What a member sees of a peer's PDU: what the gate lets through of it, as its codec reads it."""

from antiphon.core.inputs import Received
from antiphon.core.wire import Codec, Packet, Pdu


def pass_gate(codec: Codec, sender: str, pdu: Pdu) -> Received | None:
    """A PDU as it is received after its journey; None if it is garbage to the gate."""
    if pdu.code not in {kind.code for kind in codec.kinds}:
        return None
    packet = codec.decode(codec.encode(pdu, sender=sender))
    return Received(sender, packet.pdu) if isinstance(packet, Packet) else None
