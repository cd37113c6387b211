"""Observing a group from outside: members report their status to proven processes, at a bounded rate."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from antiphon.core.errors import UsageError
from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.time import SECOND_NS
from antiphon.core.wire import Codec, Packet
from antiphon.live import onlooker
from antiphon.live.joining import join
from antiphon.live.keys import KeyRing, read_keys, write_keys
from antiphon.live.onlooker import Onlooker, Sight
from antiphon.live.peers import Peer
from antiphon.live.status import (
    LONGEST_REASON,
    MOST_PEERS,
    STATUSES_PER_ASKER,
    STATUSES_PER_SECOND,
    Answers,
    Enquiry,
    Status,
    status_of,
)
from tests.live.members import a_group_name, joined, read, within
from tests.live.pairs import Ear, acquaint, drive, ears, group_name

ORDERS = ("fifo", "causal", "sequencer", "total")


async def until(so: Callable[[], bool], onlooker: Onlooker) -> None:
    while not so():
        onlooker.ask()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("order", ORDERS)
def test_an_onlooker_sees_all_members_and_no_member_sees_it(order: str) -> None:
    async def body() -> None:
        async with joined("a", "b", order=order) as (a, b), Onlooker(a.group) as onlooker:
            await until(lambda: set(onlooker.sights) == {"a", "b"}, onlooker)
            before = {site: sight.status for site, sight in onlooker.sights.items()}
            for group in (a, b):
                await group.send(b"x")
            await asyncio.gather(read(a, 2), read(b, 2))
            await until(
                lambda: all(sight.status.delivered == 2 for sight in onlooker.sights.values()), onlooker
            )
            for site, sight in onlooker.sights.items():
                assert sight.status.order == order
                assert sight.status.members == 2
                assert sight.status.admitted == 1
                assert sight.status.uptime_ms > before[site].uptime_ms
                assert [peer.site for peer in sight.status.peers] == sorted({"a", "b"} - {site})
            assert a.members == b.members == {"a", "b"}
            assert not a.counters["refusals"]

    within(body())


def test_a_group_with_a_key_tells_only_who_has_it(tmp_path: Path) -> None:
    async def body() -> None:
        path, other = tmp_path / "key", tmp_path / "other"
        write_keys(path, KeyRing.generate())
        write_keys(other, KeyRing.generate())
        async with joined("a", key=read_keys(path)) as (a,):
            async with Onlooker(a.group, key=path) as onlooker:
                await until(lambda: "a" in onlooker.sights, onlooker)
                assert not onlooker.has_wrong_key
            for key in (other, None):
                async with Onlooker(a.group, key=key) as stranger:
                    await until(lambda stranger=stranger: stranger.has_wrong_key, stranger)  # type: ignore[misc]
                    assert not stranger.sights

    within(body())


def test_beyond_loopback_an_onlooker_needs_a_key_or_says_that_it_wants_none() -> None:
    with pytest.raises(UsageError):
        Onlooker("g", network="multicast:eth0")
    with pytest.raises(UsageError):
        Onlooker("")
    with pytest.raises(UsageError, match="composed characters"):
        Onlooker("e\u0301")


def test_questions_are_answered_so_often_and_no_oftener() -> None:
    answers = Answers()
    now = SECOND_NS
    assert sum(answers.may_give(1, now) for _ in range(100)) == STATUSES_PER_ASKER
    given = sum(answers.may_give(boot, now) for boot in range(2, 1000))
    assert given == STATUSES_PER_SECOND - STATUSES_PER_ASKER
    assert len(answers._given) <= STATUSES_PER_SECOND
    assert answers.may_give(1, 2 * now)


def a_status(**changed: int) -> Status:
    counters = {"refusals": {}, "members": 2, **changed}
    return status_of("fifo", 7, 5 * SECOND_NS, counters, {})


def test_only_a_process_that_has_proved_itself_is_told() -> None:
    group = group_name()
    with ears(Ear("a", group), Ear("b", group)) as (a, b):
        a.news.own_status = a_status()
        b.transport.multicast(Enquiry())
        a.look()
        assert not b.news.statuses, "no member knows it yet"
        acquaint(a, b)

        def told() -> bool:
            b.transport.multicast(Enquiry())
            return bool(b.news.statuses)

        drive((a, b), told)
        assert b.news.statuses[0] == ("a", a.news.own_status)
        assert not a.heard, "no protocol hears of it"


def test_a_status_is_bounded_whatever_is_counted() -> None:
    peers = {f"p{n}": Peer(f"p{n}", n, 1.0, 0.5, 3, n == 9, float(n)) for n in range(20)}
    counters = {"refusals": {"first": 2, "x" * 1000: 3}, "delivered_bytes": 1 << 80, "reader_busy_s": 1.5}
    status = status_of("fifo", 1, SECOND_NS, counters, peers)
    assert len(status.peers) == MOST_PEERS
    assert status.peers[0].site == "p19"
    assert (status.refusals, len(status.refusal)) == (5, LONGEST_REASON)
    assert status.delivered_bytes == NUMBER_LIMIT - 1
    assert status.reader_busy_ms == 1500
    codec = Codec((Status,))
    found = codec.decode(codec.encode(status))
    assert isinstance(found, Packet)
    assert found.pdu == status


def test_rates_are_of_one_life() -> None:
    first = a_status(delivered_messages=100)
    sight = Sight(first, 0.0)
    assert sight.rate("delivered") == 0
    later = status_of("fifo", 7, 7 * SECOND_NS, {"refusals": {}, "delivered_messages": 300}, {})
    sight.tell(later, 1.0)
    assert sight.rate("delivered") == 100
    sight.tell(status_of("fifo", 8, SECOND_NS, {"refusals": {}, "delivered_messages": 5}, {}), 2.0)
    assert sight.rate("delivered") == 0


def test_a_member_that_does_not_take_part_yet_tells_nothing() -> None:
    async def body() -> None:
        member = join(a_group_name(), name="a")
        assert member._host.status() is None
        async with member:
            assert member._host.status() is not None

    within(body())


def test_an_onlooker_follows_a_bounded_number_of_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onlooker, "MOST_MEMBERS", 1)
    here = Onlooker("g")
    here.told("a", a_status())
    here.told("b", a_status())
    assert [*here.sights] == ["a"]
