"""Our reading of Konorski's paper, and our choices where it is silent.

The paper gives: 7 sites, messages of 1000 bytes, a 10 Mbit/s Ethernet, 20 reception buffers, reports within
20% of the message traffic, flow control set for most throughput, and processors as the limit. From that:

- `REPORT_MS` is the shortest Report_Cycle of 20, 30 and 50 ms with which reports stay within that share at
  full load, each with 64 agreed messages. Deliv_Cycle is 12 of them, with which the model of the protocol
  kept its order.
- Processing. 740 messages a second and a fifth as many reports are 880 PDUs a second, of which a site sends
  some: 1.14 ms are left for each. A Pentium of 100 to 333 MHz took about 0.3 ms to receive a datagram of
  that size. The rest is the graph's, which 'rarely exceeds 30 vertices': at 28 microseconds per vertex a PDU
  takes 1.14 ms at 30 vertices. The paper does not say how its processing grows with the graph; proportional
  growth is the mildest reading of 'too large to be processed in real time'.
- Flow control is the number of own messages that a site may have in flight. Several values are run for each
  setting, and the best one that keeps the order counts. Without Suspended Delivery or detector it is often
  Deliv_Cycle that orders messages; shorter ones are tried there too.
- Variable membership: two of the seven sites come and go, 1 s present and 0.5 s absent on average.
"""

from typing import Any, Final

from antiphon.studies.results import Where

SITES: Final = 7
REPORT_MS: Final = 30.0
DELIV_MS: Final = 12 * REPORT_MS
SHORTER_DELIV_MS: Final = (3 * REPORT_MS, 6 * REPORT_MS)
PROCESSING_US: Final = 300.0
VERTEX_US: Final = 28.0
BUFFERS: Final = 20
COMERS_AND_GOERS: Final = 2
OFFERED_S: Final = 4.0
"""Time for which messages are offered in a run of figure 3."""

LAN: Final[dict[str, Any]] = {
    "members": SITES,
    "size": 1000,
    "report_ms": REPORT_MS,
    "processing_us": PROCESSING_US,
    "calm_ms": 1000.0,
    "away_ms": 500.0,
}
"""Parameters that all runs of figure 3 share."""


def offered(point: Where) -> int:
    """Enough messages to be offered as long as figure 3's runs last."""
    return round(OFFERED_S * float(point["rate"]))
