"""The Distributed Precedence Graph protocol: total order that does not care who is there.

Source: Konorski, "A membership-insensitive, multicast group transport protocol".
"""

from typing import Final

from antiphon.core.recording import Property
from antiphon.protocols.dpg.member import Dpg
from antiphon.protocols.dpg.pdus import PDUS, DpgConfiguration

__all__ = ["PDUS", "PROMISES", "Dpg", "DpgConfiguration"]

PROMISES: Final[tuple[Property, ...]] = ("integrity", "duplicate", "atomicity", "fifo", "total")
