"""Members with different options: each learns which option differs, none lets the other in."""

import asyncio
from typing import Any

import pytest

from antiphon.live.errors import LeftError
from antiphon.live.group import Group
from antiphon.live.handshake import Terms
from antiphon.live.joining import join
from antiphon.live.limits import Limits
from antiphon.live.messages import Presence
from tests.live.members import a_group_name, joined, read, within
from tests.live.pairs import OTHER_RING, RING, Ear, drive, ears, group_name

DIFFERENCES: list[tuple[dict[str, Any], dict[str, Any], str, str, str]] = [
    ({"order": "fifo"}, {"order": "total"}, "order", "fifo", "total"),
    ({"order": "causal"}, {"order": "fifo"}, "order", "causal", "fifo"),
    ({"stability": "coordp"}, {"stability": "gossip"}, "stability", "coordp", "gossip"),
    ({}, {"stability": "train"}, "stability", "coordp", "train"),
    ({"repair": "any"}, {}, "repair", "any", "hybrid"),
    ({}, {"errors": "coordp"}, "errors", "None", "coordp"),
    ({}, {"trigger": "adaptive"}, "trigger", "timer", "adaptive"),
    (
        {"stability": "gossip"},
        {"stability": "gossip", "step_ns": 20_000_000},
        "step_ns",
        "None",
        "20000000",
    ),
    ({"stability": "fulldist"}, {"stability": "fulldist", "piggyback": True}, "piggyback", "False", "True"),
    ({}, {"detector": "gossip"}, "detector", "heartbeat", "gossip"),
    ({"order": "total"}, {"order": "total", "service": "lan"}, "service", "sequencer", "lan"),
]


async def refusal(group: Group) -> Presence:
    async for event in group.presence():
        if event.kind == "refused":
            return event
    raise AssertionError("the group was left")


@pytest.mark.parametrize("key", [None, RING], ids=["open", "sealed"])
@pytest.mark.parametrize(
    ("first", "second", "option", "ours", "theirs"),
    DIFFERENCES,
    ids=[f"{row[2]}-{row[4]}" for row in DIFFERENCES],
)
def test_both_sides_are_told_which_option_differs(
    first: dict[str, Any], second: dict[str, Any], option: str, ours: str, theirs: str, key: Any
) -> None:
    group = a_group_name()

    async def body() -> None:
        async with (
            join(group, name="a", key=key, **first) as a,
            join(group, name="b", key=key, **second) as b,
        ):
            told_a, told_b = await asyncio.gather(refusal(a), refusal(b))
            assert told_a.reason.startswith(f"'b' has {option}='{theirs}' and this member {option}='{ours}'")
            assert told_b.reason.startswith(f"'a' has {option}='{ours}' and this member {option}='{theirs}'")
            assert told_a.reason in a.counters["refusals"]
            assert [set(each.members) for each in (a, b)] == [{"a"}, {"b"}]
            await a.send(b"alone")
            assert await read(a, 1) == [("a", 0, b"alone")]

    within(body())


@pytest.mark.parametrize(
    ("theirs", "told"),
    [(None, "without a key, and this member has one"), (OTHER_RING, "with a key that this member does not")],
    ids=["none", "another"],
)
def test_both_sides_are_told_that_their_keys_differ(theirs: Any, told: str) -> None:
    group = a_group_name()

    async def body() -> None:
        async with join(group, name="a", key=RING) as a, join(group, name="b", key=theirs) as b:
            told_a, told_b = await asyncio.gather(refusal(a), refusal(b))
            assert told in told_a.reason
            mutual = told if theirs else "with a key, and this member has none"
            assert mutual in told_b.reason
            assert told_a.reason.endswith("give all members the same key file.")
            assert [set(each.members) for each in (a, b)] == [{"a"}, {"b"}]

    within(body())


def test_members_that_name_different_sequencers_say_so() -> None:
    group = a_group_name()

    async def body() -> None:
        async with join(group, name="a", order="sequencer", sequencer="a") as a:
            hasty = Limits(join_s=2.0)
            with pytest.raises(LeftError, match="sequencer='a' and this member sequencer='c'"):
                async with join(group, name="b", order="sequencer", sequencer="c", limits=hasty):
                    pass
            assert "sequencer='c'" in (await refusal(a)).reason

    within(body())


def test_what_was_said_by_default_and_what_was_said_in_words_is_the_same() -> None:
    async def body() -> None:
        group = a_group_name()
        said = join(
            group, name="a", stability="coordp", detector="heartbeat", trigger="timer", repair="hybrid"
        )
        async with said as a, join(group, name="b") as b:
            await asyncio.gather(a.wait_for_members(2), b.wait_for_members(2))
            assert a.counters["refusals"] == b.counters["refusals"] == {}

    within(body())


def test_a_member_that_differs_disturbs_nobody() -> None:
    async def body() -> None:
        group = a_group_name()
        async with joined("a", "b", group=group) as (a, b), join(group, name="c", stability="gossip"):
            await refusal(a)
            sent = await a.send(b"x")
            assert await read(b, 1) == [("a", 0, b"x")]
            await sent.stable()
            assert a.members == {"a", "b"}

    within(body())


def test_options_that_only_one_side_knows_are_left_to_that_side() -> None:
    group = group_name()
    earlier = Ear("a", group, terms=Terms({"order": "fifo"}))
    later = Ear("b", group, terms=Terms({"order": "fifo", "new": "yes"}))
    with ears(earlier, later) as both:
        drive(both, lambda: all(ear.transport.addresses for ear in both))
        assert earlier.news.refusals == later.news.refusals == []
