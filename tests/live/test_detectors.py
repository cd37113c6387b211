"""Live groups with each failure detector: a killed member is missed, and blocks nothing."""

import asyncio
import sys

import pytest

from antiphon.core.errors import UsageError
from antiphon.live.group import Group
from antiphon.live.joining import join
from antiphon.protocols.detection import DETECTORS
from tests.live.members import a_group_name, joined, within


@pytest.mark.slow
@pytest.mark.parametrize("detector", DETECTORS)
def test_a_killed_member_is_missed_and_blocks_nothing(detector: str) -> None:
    group = a_group_name()

    async def body() -> None:
        async with joined("a", "b", group=group, detector=detector) as (a, b):
            victim = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "antiphon.cli.main", "node", group, "--name", "v",
                "--detector", detector, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            try:
                await asyncio.gather(a.wait_for_members(3), b.wait_for_members(3))
            finally:
                victim.kill()
            await victim.wait()
            await asyncio.gather(vanishes(a, "v"), vanishes(b, "v"))
            sent = await a.send(b"without it")
            await sent.stable()

    within(body())


async def vanishes(group: Group, site: str) -> None:
    async for event in group.presence():
        if event.kind == "vanished" and event.site == site:
            return


def test_a_detector_that_does_not_exist_is_said_at_once() -> None:
    with pytest.raises(UsageError, match="telepathy"):
        join(a_group_name(), detector="telepathy")


def test_the_sequencer_has_a_way_of_its_own() -> None:
    with pytest.raises(UsageError, match="detector="):
        join(a_group_name(), name="a", order="sequencer", sequencer="a", detector="gossip")
