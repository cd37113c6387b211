"""What the scenario `dpg` tells beside the shared metrics: order kept or broken, presence, traffic."""

import pytest

from antiphon.core.errors import UsageError
from antiphon.core.ids import MessageId, Site, site_names
from antiphon.core.seeds import Seeds
from antiphon.core.time import SECOND_NS
from antiphon.protocols.dpg import Dpg
from antiphon.protocols.dpg.pdus import Report
from antiphon.sim.scenario import Metrics
from antiphon.sim.scenarios.dpg import (
    SCENARIO,
    Configuration,
    DeliveryLog,
    build_service,
    processing_of,
    size_of,
    violated_metrics,
)
from antiphon.trace.recorder import MemoryRecorder


def log_of(*sites: str, horizon_ns: int = SECOND_NS) -> DeliveryLog:
    return DeliveryLog(sites, horizon_ns, None)


def deliver(log: DeliveryLog, site: Site, *numbers: int, time_ns: int = 0) -> None:
    for number in numbers:
        log.record(site, "deliver", time_ns, "s", number)


def test_messages_out_of_order_and_missing_ones_are_counted() -> None:
    log = log_of("a", "b", "c")
    deliver(log, "a", 0, 1, 2, 3)
    deliver(log, "b", 1, 0, 2, 3)
    deliver(log, "c", 0, 1, 2)
    found = log.metrics(SECOND_NS)
    assert (found["out_of_order"], found["missing"]) == (1, 1)


def test_what_an_absent_site_lacks_is_not_missing() -> None:
    log = log_of("a", "b")
    deliver(log, "a", 0, 1)
    log.record("b", "absent", 0)
    assert log.metrics(SECOND_NS)["missing"] == 0


def test_presence_is_a_share_of_the_time_in_which_messages_are_offered() -> None:
    log = log_of("a", "b")
    log.record("b", "absent", SECOND_NS // 4)
    log.record("b", "present", SECOND_NS // 2)
    log.record("a", "absent", 2 * SECOND_NS)
    found = log.metrics(SECOND_NS)
    assert found["present_share"] == pytest.approx(1 - 0.25 / 2)
    assert found["spells"] == 3


def test_throughput_is_that_of_the_slowest_who_stayed_while_messages_were_offered() -> None:
    log = log_of("a", "b", "c")
    deliver(log, "a", 0, 1, 2)
    deliver(log, "b", 0, 1)
    deliver(log, "b", 2, time_ns=2 * SECOND_NS)
    log.record("c", "absent", 0)
    assert log.metrics(SECOND_NS)["busy_throughput"] == 2.0


def test_the_log_passes_everything_on() -> None:
    recorder = MemoryRecorder("run")
    log = DeliveryLog(("a",), SECOND_NS, recorder)
    log.record("a", "send", 5, "a", 0)
    deliver(log, "a", 0)
    assert [event.kind for event in recorder.events()] == ["send", "deliver"]


@pytest.mark.parametrize(
    ("untold", "disagreements", "unnoticed"), [(3, 0, 5), (3, 1, 3), (0, 0, 2), (0, 1, 0)]
)
def test_what_is_violated_and_what_of_it_nobody_noticed(
    untold: int, disagreements: int, unnoticed: int
) -> None:
    metrics: Metrics = {
        "out_of_order": 2,
        "missing": 3,
        "missing_untold": untold,
        "disagreements": disagreements,
    }
    assert violated_metrics(metrics) == {"violated": 5, "unnoticed": unnoticed}


def test_a_message_that_a_member_delivered_alone_and_said_so_is_told() -> None:
    log = log_of("a", "b")
    deliver(log, "a", 0, 1, 2)
    deliver(log, "b", 0)
    found = log.metrics(SECOND_NS, lambda site, message: (site, message) == ("b", MessageId("s", 1)))
    assert (found["missing"], found["missing_untold"]) == (2, 1)
    assert log.metrics(-1)["missing"] == 0, "they may still be under way"


def test_a_pdu_takes_longer_the_larger_the_graph_is() -> None:
    configuration = Configuration(processing_us=300.0, vertex_us=28.0)
    site = site_names(configuration.members)[2]
    member = Dpg(
        site, configuration.protocol_configuration(), build_service(configuration), Seeds(1).stream("x")
    )
    processing = processing_of(configuration, {site: member})
    assert processing is not None
    assert processing(2) == 300_000
    member._order.graph.add(7, 0)
    assert processing(2) == 328_000
    assert processing_of(Configuration(processing_us=300.0), {}) is None


def test_a_report_takes_what_its_lists_take() -> None:
    def report(agreed: bytes, links: bytes) -> Report:
        return Report(
            incarnation=0, serial=0, clock_ns=0, index=0, digest=0, agreed=agreed, links=links, vertices=b"",
            arcs=b"", lost=b"", demand_ns=0, listening=False, streams={}, service=b"",
        )  # fmt: skip

    assert size_of(report(bytes(80), bytes(10))) - size_of(report(b"", b"")) == 90


def test_slow_sites_are_simulated_and_tell_of_their_traffic() -> None:
    configuration = Configuration(messages=60, rate=300.0, processing_us=2000.0, vertex_us=200.0, window=2)
    found = SCENARIO.run(configuration, 1, None)
    assert found["finished"] is True
    assert found["violated"] == 0
    assert isinstance(found["report_share"], float)
    assert found["report_share"] > 0
    faster = SCENARIO.run(Configuration(messages=60, rate=300.0, window=2), 1, None)
    assert isinstance(found["latency_s"], float)
    assert isinstance(faster["latency_s"], float)
    assert found["latency_s"] > faster["latency_s"]


def test_misses_are_counted_as_a_share() -> None:
    found = SCENARIO.run(Configuration(messages=100, loss=0.1), 1, None)
    assert isinstance(found["miss_rate"], float)
    assert 0.05 < found["miss_rate"] < 0.15


def test_processing_cannot_take_less_than_no_time() -> None:
    with pytest.raises(UsageError):
        Configuration(vertex_us=-1.0)


@pytest.mark.parametrize("knobs", [{"jitter_ms": 3.0}, {"reordering": 0.1}], ids=["jitter", "reordering"])
def test_only_the_service_that_needs_one_order_refuses_a_network_that_breaks_it(
    knobs: dict[str, float],
) -> None:
    with pytest.raises(UsageError, match="in one order") as caught:
        SCENARIO.configure({"service": "lan", **knobs})
    assert "--jitter-ms" in (caught.value.hint or "")
    for service in ("sequencer", "bounded-delay"):
        SCENARIO.configure({"service": service, **knobs})


def test_a_replay_command_turns_a_knob_off_as_the_command_line_does() -> None:
    command = SCENARIO.replay_command(Configuration(suspended=False, loss=0.1), 3)
    assert command == "antiphon simulate dpg --loss 0.1 --no-suspended --seed 3"
