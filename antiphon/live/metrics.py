"""A member's figures for Prometheus (`pip install 'antiphon[metrics]'`).

Every figure of `Group.counters` is exported under its own name with the prefix `antiphon_` and the labels
`group` and `member`: what only grows as a counter, what it holds as a gauge, datagrams dropped by reason.
What it knows of the other members has the prefix `antiphon_peer_` and the label `peer`.
Two histograms time the member's own messages: until it delivers them itself, and until they are stable.
"""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from antiphon.core.errors import OutputError
from antiphon.core.extras import lacking
from antiphon.core.ids import Site
from antiphon.live.figures import BOUNDS_S, Latency
from antiphon.live.group import Group
from antiphon.live.peers import Peer

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import CollectorRegistry

LABELS: Final = ("group", "member")
GAUGES: Final = frozenset(
    {
        "queued_bytes",
        "reader_lag",
        "outgoing_bytes",
        "unfinished_bytes",
        "members",
        "kept_bytes",
        "kept_messages",
    }
    | {"history_log_bytes", "history_log_messages", "held_back_bytes"}
    | {"vertices", "ordering_buffers", "lost_bodies", "message_cycle_ns", "epoch", "is_sequencer", "lease_ns"}
    | {"bound_ns", "clock_adjustment_ns", "waiting_messages"}
    | {"sites", "trees", "kept", "waiting"}
    | {"key_age_s", "key_sealed_pdus"}
)
"""Figures that may go down; all others only grow."""
HELP: Final = {
    "delivered_messages": "Messages delivered to the application.",
    "delivered_bytes": "Bytes of bodies delivered to the application.",
    "admitted_messages": "Messages of this member that the protocol has taken.",
    "stable_messages": "Messages known to be held by every member that counts.",
    "slow_reader_spells": "Times that this member's application read too slowly.",
    "absences": "Times that this member may have missed messages.",
    "reader_lag": "Delivered messages that wait for the application.",
    "reader_busy_s": "Seconds that the application has spent on deliveries.",
    "queued_bytes": "Delivered bytes that wait for the application.",
    "disagreements": "Times that another member's order was found to differ from ours.",
    "dummies": "Messages of the order that no member present had.",
    "late": "Messages that became known only after messages that they precede.",
    "outgoing_bytes": "Bytes that wait to be admitted.",
    "members": "Members that count, this one included.",
    "refusals": "Processes that were refused, by the latest reasons.",
    "key_age_s": "How long this member has sealed with its present key; it takes another after a day.",
    "key_sealed_pdus": "PDUs that this member has sealed with its present key; at most 2^32.",
    "key_changes": "Times that a changed key file was loaded.",
}


PEER_COUNTERS: Final = frozenset({"lost", "held_us_up_s"})
PEER_HELP: Final = {
    "lag": "Messages that this member has sent or delivered, and that the other is not known to hold.",
    "silence_s": "Seconds since the other's last datagram.",
    "round_trip_s": "Seconds that the other recently took to acknowledge a message.",
    "lost": "Batches that the other has requested again.",
    "holding_us_up": "Whether this member's sending waits for the other now.",
    "held_us_up_s": "Seconds that this member's sending has waited for the other.",
}


class GroupCollector:
    """Reads the figures at each scrape; costs nothing otherwise."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def collect(self) -> Iterator["Metric"]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        labels = (self._group.group, self._group.name)
        for name, value in self._group.counters.items():
            text = HELP.get(name, name.replace("_", " ").capitalize() + ".")
            family = GaugeMetricFamily if name in GAUGES else CounterMetricFamily
            if value is None or isinstance(value, str):
                continue  # a name is not a figure
            if isinstance(value, dict):
                yield _by_reason(f"antiphon_{name}", text, labels, value)
            else:
                metric = family(f"antiphon_{name}", text, labels=LABELS)
                metric.add_metric(labels, value)
                yield metric
        yield from _of_peers(labels, self._group.peers)
        watch = self._group.latency
        yield _histogram(
            "antiphon_own_delivery_seconds", "Until own messages are delivered.", labels, watch.delivery
        )
        yield _histogram(
            "antiphon_stability_seconds", "Until own messages are stable.", labels, watch.stability
        )


def _of_peers(labels: tuple[str, str], peers: dict[Site, Peer]) -> Iterator["Metric"]:
    """What this member knows about each other member."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for name, text in PEER_HELP.items():
        family = CounterMetricFamily if name in PEER_COUNTERS else GaugeMetricFamily
        metric = family(f"antiphon_peer_{name}", text, labels=(*LABELS, "peer"))
        for site, peer in peers.items():
            value = getattr(peer, name)
            if value is not None:
                metric.add_metric((*labels, site), float(value))
        yield metric


def _by_reason(name: str, text: str, labels: tuple[str, str], counts: dict[str, Any]) -> "Metric":
    from prometheus_client.core import CounterMetricFamily

    metric = CounterMetricFamily(name, text, labels=(*LABELS, "reason"))
    for reason, count in counts.items():
        metric.add_metric((*labels, reason), count)
    return metric


def _histogram(name: str, text: str, labels: tuple[str, str], latency: Latency) -> "Metric":
    from prometheus_client.core import HistogramMetricFamily

    bounds = [*map(str, BOUNDS_S), "+Inf"]
    metric = HistogramMetricFamily(name, text, labels=LABELS)
    metric.add_metric(labels, list(zip(bounds, accumulate(latency.buckets), strict=True)), latency.total_s)
    return metric


def registry(groups: Iterable[Group]) -> "CollectorRegistry":
    """A registry with these groups' figures, to serve or to merge into the application's registry."""
    try:
        from prometheus_client import CollectorRegistry
    except ModuleNotFoundError:
        raise lacking("metrics", "Metrics need") from None
    collectors = CollectorRegistry()
    for group in groups:
        collectors.register(GroupCollector(group))
    return collectors


def serve_metrics(group: Group, port: int, address: str = "127.0.0.1") -> int:
    """Serve a group's figures over HTTP from a thread. Returns the port in use."""
    figures = registry([group])
    from prometheus_client import start_http_server

    try:
        server, _ = start_http_server(port, address, figures)
    except (OSError, OverflowError) as error:
        raise OutputError(
            f"Metrics cannot be served on port {port}: {str(error).rstrip('.')}.", hint="Choose another port."
        ) from error
    return int(server.server_port)
