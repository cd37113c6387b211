"""A simulated run with known clocks and a planted slow member: both are found, and nothing else is."""

import pytest

from antiphon.core.errors import InputError
from antiphon.timing.summary import RunStats, statistics
from antiphon.timing.tables import LEVEL_BASE, LocalSource, level_of, nanoseconds_of
from antiphon.trace.arrow import EVENTS, events_table, pa
from antiphon.trace.schema import Event
from tests.timing.simulated import OFFSETS_NS, SLOW, SLOW_BY_NS, SLOW_FROM_NS, slow_run


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return slow_run()


@pytest.fixture(scope="module")
def found(rows: pa.Table) -> RunStats:
    (run,) = statistics(LocalSource([rows])).runs
    return run


def test_offsets_are_inside_their_stated_uncertainty(found: RunStats) -> None:
    assert len(found.clocks) == len(OFFSETS_NS)
    for clock in found.clocks:
        truth = (OFFSETS_NS[clock.site] - OFFSETS_NS[str(found.reference)]) / 1e6
        assert clock.offset_ms is not None
        assert clock.uncertainty_ms is not None
        assert abs(clock.offset_ms - truth) <= clock.uncertainty_ms + 1e-6
        assert clock.uncertainty_ms < 2


def test_the_slow_member_is_named_with_its_beginning_and_its_cost(found: RunStats) -> None:
    (slow,) = found.slow
    assert slow.site == SLOW
    assert abs(slow.since_s - SLOW_FROM_NS / 1e9) < 0.2
    assert slow.until_s is None
    assert slow.behind_ms == pytest.approx(SLOW_BY_NS / 1e6, rel=0.1)
    assert slow.last_share == pytest.approx(2 / 3, rel=0.1)
    assert "Meanwhile the others kept" in slow.sentence
    late = {member.site: member.last for member in found.members}
    assert max(late, key=lambda site: late[site]) == SLOW


def test_a_run_without_a_slow_member_names_none() -> None:
    (run,) = statistics(LocalSource([slow_run(slow=False, messages=300)])).runs
    assert run.slow == []


def test_latencies_are_those_of_the_network(found: RunStats) -> None:
    """One hop takes 1 to 1.5 ms; what goes through the sequencer takes two."""
    pair = {(each.source, each.target, each.kind): each for each in found.latency}
    hop = pair["s1", "s0", "receive"]
    assert hop.uncertainty_ms is not None
    assert 1.0 - hop.uncertainty_ms <= hop.p50_ms <= 1.5 + hop.uncertainty_ms
    both = pair["s1", "s0", "receive"].p50_ms + pair["s0", "s1", "receive"].p50_ms
    assert 2.0 <= both <= 3.0 * LEVEL_BASE
    assert pair["s1", "s1", "deliver"].uncertainty_ms == 0
    assert pair["s0", "s1", "stable"].p50_ms > 2


def test_batches_count_for_each_message_and_the_first_of_two_deliveries_counts() -> None:
    table = events_table(
        [
            Event("r", "a", 0, "send", "a", 0, 3, time_ns=0, size=5),
            Event("r", "b", 0, "deliver", "a", 0, 2, time_ns=1_000_000),
            Event("r", "b", 1, "deliver", "a", 2, time_ns=4_000_000),
            Event("r", "b", 2, "deliver", "a", 0, time_ns=9_000_000, attempt=2),
        ]
    )
    (run,) = statistics(LocalSource([table]), "trust").runs
    (latency,) = run.latency
    assert (latency.messages, latency.mean_ms) == (3, 2.0)
    assert [member.redelivered for member in run.members] == [0, 1]


def test_one_way_logs_say_what_they_cannot_tell() -> None:
    rows = [Event("r", "p", n, "send", "p", n, time_ns=10 * n) for n in range(5)]
    rows += [Event("r", "c", n, "deliver", "p", n, time_ns=10**9 + 10 * n + n) for n in range(5)]
    (run,) = statistics(LocalSource([events_table(rows)])).runs
    assert run.latency[0].uncertainty_ms is None
    assert run.latency[0].mean_ms == pytest.approx(2e-6)
    said = " ".join(run.cannot_tell)
    assert "Messages do not go both ways between c and p" in said
    assert "No row says when a message is stable" in said
    (trusted,) = statistics(LocalSource([events_table(rows)]), "trust").runs
    assert trusted.latency[0].mean_ms == pytest.approx(1000.0, rel=1e-3)


def test_a_consumer_that_becomes_slow_is_named_without_a_way_back() -> None:
    ms = 10**6
    rows = [Event("r", "p", n, "send", "p", n, time_ns=10 * n * ms) for n in range(60)]
    for place, site in enumerate(("c1", "c2", "c3")):
        late = [80 * ms if site == "c2" and n >= 20 else n % 3 * ms // 10 for n in range(60)]
        rows += [
            Event("r", site, n, "deliver", "p", n, time_ns=(10 * n + 1 + 999 * place) * ms + late[n])
            for n in range(60)
        ]
    (run,) = statistics(LocalSource([events_table(rows)])).runs
    assert [slow.site for slow in run.slow] == ["c2"]
    assert not run.slow[0].is_round_trip
    assert run.slow[0].since_s == pytest.approx(0.2, abs=0.1)


def test_rows_without_times_and_traces_without_messages() -> None:
    rows = [Event("r", "a", 0, "send", "a", 0), Event("r", "b", 0, "deliver", "a", 0)]
    (run,) = statistics(LocalSource([events_table(rows)])).runs
    assert run.cannot_tell == ["No row has a time, so nothing can be said about speed."]
    assert run.deliveries == 1
    with pytest.raises(InputError, match="nothing to measure"):
        statistics(LocalSource([EVENTS.empty_table()]))


def test_absences_are_shares_of_the_run() -> None:
    second = 10**9
    rows = [Event("r", "a", n, "send", "a", n, time_ns=10 * n * second) for n in range(2)]
    rows += [
        Event("r", "b", 0, "absent", time_ns=2 * second),
        Event("r", "b", 1, "present", time_ns=6 * second),
        Event("r", "b", 2, "deliver", "a", 1, time_ns=10 * second),
    ]
    (run,) = statistics(LocalSource([events_table(rows)]), "trust").runs
    assert [(member.present_share, member.absences) for member in run.members] == [(1.0, 0), (0.6, 1)]


def test_levels_are_where_they_say() -> None:
    for nanoseconds in (1, 7, 1000, 123_456_789):
        middle = nanoseconds_of(level_of(nanoseconds))
        assert middle / LEVEL_BASE <= nanoseconds <= middle * LEVEL_BASE
    assert level_of(-5) == 0
