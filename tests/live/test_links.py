"""Groups on links with a rate and a queue: three hosts on a switch whose ports are slow."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from links import SLOW, Hosts, reason_why_not

from antiphon.load.processes import MemberProcesses, Plan, summarise

pytestmark = pytest.mark.live
MEMBERS = 3
ORDERS = ("fifo", "causal", "total", "sequencer")


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    reason = reason_why_not()
    if reason is not None:
        pytest.skip(reason)
    with Hosts(MEMBERS, SLOW) as made:
        yield made


def lost(hosts: Hosts, folder: Path, plan: Plan) -> int:
    """What did not reach everyone of a processes's messages."""
    reports = asyncio.run(MemberProcesses(plan, folder, inside=hosts.inside).run())
    assert any(report["sent"] for report in reports.values())
    return int(summarise(plan, reports)["lost"])


@pytest.mark.parametrize("order", ORDERS)
def test_members_at_full_speed_keep_to_what_a_slow_link_takes(
    hosts: Hosts, tmp_path: Path, order: str
) -> None:
    """Without a rate of their own they would lose most of it, and then more by repeating it."""
    plan = Plan(
        members=MEMBERS, size=500, seconds=2, order=order, network="multicast:eth0", insecure=True
    )  # fmt: skip
    dropped = hosts.dropped()
    assert lost(hosts, tmp_path, plan) == 0
    assert hosts.dropped() - dropped < 20_000


@pytest.mark.parametrize("order", ORDERS)
def test_a_large_message_arrives_over_a_slow_link(hosts: Hosts, tmp_path: Path, order: str) -> None:
    plan = Plan(
        members=MEMBERS, size=1_000_000, seconds=2, order=order, network="multicast:eth0", insecure=True,
        rate=1, senders=1,
    )  # fmt: skip
    assert lost(hosts, tmp_path, plan) == 0
