"""The one-channel services with ContiguityDetector that the Distributed Precedence Graph can stand on."""

from typing import Final

from antiphon.core.wire import Pdu
from antiphon.protocols.dpg.services.bounded_delay import BoundedDelayService
from antiphon.protocols.dpg.services.lan import LanService
from antiphon.protocols.dpg.services.tag_sequencer import SequencerService

SERVICES: Final[dict[str, type[LanService | BoundedDelayService | SequencerService]]] = {
    "lan": LanService,
    "bounded-delay": BoundedDelayService,
    "sequencer": SequencerService,
}
"""By the names in the configuration."""

SERVICE_PDUS: Final[tuple[type[Pdu], ...]] = tuple(
    dict.fromkeys(pdu for service in SERVICES.values() for pdu in service.pdus)
)
"""The PDUs of all services, beside 'message' PDUs."""
