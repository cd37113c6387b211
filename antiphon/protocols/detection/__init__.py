"""Failure detection: heartbeats, polling, and gossip; and how to make one of them by its name.

Source: K. Guo, Scalable Message Stability Detection Protocols, chapter 3. All three are protocol objects that
answer with `Vanished` and `Appeared`; `antiphon.protocols.stability.watched` joins one with a stability
protocol, and reliable FIFO multicast takes one by its option `detector`. docs/failure-detection.md compares
them.
"""

from typing import Final, Literal, get_args

from antiphon.core.wire import Pdu
from antiphon.protocols.detection.base import Detector, Farewell
from antiphon.protocols.detection.gossip import Gossip, GossipConfiguration, GossipDetection
from antiphon.protocols.detection.heartbeat import Alive, Heartbeat, HeartbeatConfiguration
from antiphon.protocols.detection.polling import Poll, PollAnswer, Polling, PollingConfiguration

__all__ = [
    "DETECTORS",
    "PDUS",
    "Detector",
    "GossipConfiguration",
    "GossipDetection",
    "Heartbeat",
    "HeartbeatConfiguration",
    "Kind",
    "Polling",
    "PollingConfiguration",
]

Kind = Literal["heartbeat", "polling", "gossip"]
DETECTORS: Final[tuple[str, ...]] = get_args(Kind)
PDUS: Final[tuple[type[Pdu], ...]] = (Alive, Farewell, Poll, PollAnswer, Gossip)
