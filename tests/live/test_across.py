"""Nodes in several groups over real sockets: one order for all that two of them both deliver."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import cycle, pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

import antiphon
from antiphon.check.checkers import check_trace
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.recording import Property
from antiphon.live.events import CutOff, Vanished
from antiphon.live.node import Node
from antiphon.trace.files import read_trace
from tests.live.hosts import skip_unless_allowed
from tests.live.live_stage import ANTIPHON, LiveStage
from tests.live.members import a_group_name, joined, within
from tests.live.stage import conclude

MEMBERSHIP = {"A": "abc", "B": "bcd", "C": "ad"}
NAMES = "abcd"


@contextlib.asynccontextmanager
async def nodes(names: str, **options: Any) -> AsyncIterator[dict[str, Node]]:
    cluster = a_group_name()
    async with contextlib.AsyncExitStack() as stack:
        found = [antiphon.node(cluster, name=name, **options) for name in names]
        await asyncio.gather(*(stack.enter_async_context(each) for each in found))
        await asyncio.gather(*(each.wait_for_nodes(len(names)) for each in found))
        yield {each.name: each for each in found}


async def enter(members: dict[str, Node], membership: dict[str, str]) -> None:
    await asyncio.gather(
        *(members[name].join(group) for group, names in membership.items() for name in names)
    )


async def read(node: Node, wanted: int) -> list[tuple[str | None, str, int, bytes]]:
    found = []
    if wanted:
        async for message in node:
            found.append((message.group, message.sender, message.number, message.body))
            if len(found) == wanted:
                break
    return found


def test_a_node_can_be_awaited_and_leaves_when_it_is_told() -> None:
    async def body() -> None:
        cluster = a_group_name()
        alice, bob = await asyncio.gather(*(antiphon.node(cluster, name=name) for name in ("alice", "bob")))
        await bob.wait_for_nodes(2)
        orders = await alice.join("orders")
        await orders.send(b"x")
        assert await read(alice, 1) == [("orders", "alice", 0, b"x")]
        await alice.leave()
        with pytest.raises(antiphon.LeftError):
            await orders.send(b"y")
        await bob.leave()

    within(body())


def violations(folder: Path) -> set[Property]:
    """The promises that the trace breaks."""
    trace = read_trace(folder)
    (run,) = trace.runs
    assert run.promises
    return {violation.property for violation in check_trace(trace.events, run, run.promises)}


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"bodies": "direct"}, {"bypass": True}], ids=str)
def test_common_members_of_overlapping_groups_deliver_in_one_order(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    random = Random(7)

    async def body() -> None:
        async with nodes(NAMES, trace=tmp_path, **options) as members:
            await enter(members, MEMBERSHIP)
            assert {name: node.groups for name, node in members.items()} == {
                name: frozenset(group for group, names in MEMBERSHIP.items() if name in names)
                for name in NAMES
            }
            meant = dict.fromkeys(NAMES, 0)
            for turn in range(150):
                group = random.choice("ABC")
                # Groups are open: a sender need not be a member.
                await members[random.choice(NAMES)].group(group).send(b"%d" % turn)
                for name in MEMBERSHIP[group]:
                    meant[name] += 1
            heard = dict(
                zip(NAMES, await asyncio.gather(*(read(members[n], meant[n]) for n in NAMES)), strict=True)
            )
            for one, other in pairwise([*NAMES, "a"]):
                common = set(heard[one]) & set(heard[other])
                assert [each for each in heard[one] if each in common] == [
                    each for each in heard[other] if each in common
                ]
            for node in members.values():
                await node.finish()

    within(body())
    assert not violations(tmp_path)


def test_groups_are_joined_and_left_while_messages_flow(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes("abc", trace=tmp_path) as members:
            await enter(members, {"A": "ab", "B": "bc"})
            a, b, c = (members[name] for name in "abc")
            flowing = asyncio.create_task(flow(a, b))
            joined = await c.join("A")
            await b.leave("B")
            await a.join("B")
            for message in await flowing:
                await message.stable()
            await (await joined.send(b"last")).stable()
            # Every node delivers the last message after all others; until then none may end the run.
            seen = await asyncio.gather(*(read_until(node, b"last") for node in (a, b, c)))
            assert b.groups == {"A"}
            assert a.groups == {"A", "B"}
            assert {body for group, body in seen[0] if group == "A"} >= {b"A%d" % turn for turn in range(100)}
            for node in members.values():
                await node.finish()

    async def flow(a: Node, b: Node) -> list[antiphon.Message]:
        sent = []
        for turn in range(100):
            sent.append(await a.group("A").send(b"A%d" % turn))
            sent.append(await b.group("B").send(b"B%d" % turn))
        return sent

    async def read_until(node: Node, last: bytes) -> list[tuple[str | None, bytes]]:
        seen = []
        async for message in node:
            seen.append((message.group, message.body))
            if message.body == last:
                break
        return seen

    within(body())
    assert not violations(tmp_path)


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"causal": True}, "causal='True' and this"), ({"bodies": "direct"}, "bodies='direct' and this")],
)
def test_a_node_that_is_told_otherwise_is_not_let_in(options: dict[str, Any], reason: str) -> None:
    cluster = a_group_name()

    async def body() -> None:
        first = antiphon.node(cluster, name="a")
        second = antiphon.node(cluster, name="b", **options)
        async with first as node, second as other:
            told = [await anext(each.presence()) for each in (node, other)]
            assert [(each.kind, each.site) for each in told] == [("refused", "b"), ("refused", "a")]
            assert reason in told[0].reason
            assert [set(each.nodes) for each in (node, other)] == [{"a"}, {"b"}]

    within(body())


def test_misuse_is_told_in_a_sentence() -> None:
    async def body() -> None:
        async with nodes("ab") as members:
            group = await members["a"].join("A")
            whole = group._whole
            with pytest.raises(UsageError, match="several groups"):
                await whole.send(b"x")
            with pytest.raises(UsageError, match="all of its members"):
                await whole.send(b"x", to={"a"}, group="A")
            with pytest.raises(UsageError, match="no name for a group"):
                await members["a"].join("")
            with pytest.raises(UsageError, match="no name for a group"):
                await members["a"].group("g" * 65).send(b"x")
            await members["a"].join("A")  # once more changes nothing
            await members["b"].leave("A")  # nor does leaving where one is not
        async with joined("a", "b") as (alone, _):
            with pytest.raises(UsageError, match="one group"):
                await alone.send(b"x", group="A")
            with pytest.raises(UsageError, match="one group"):
                await alone.enter("A")
        with pytest.raises(UsageError, match="has no option causal="):
            antiphon.join("g", order="total", causal=True)
        with pytest.raises(UsageError, match="There is no bodies 'round'"):
            antiphon.node("g", bodies="round")

    within(body())


# Processes on hosts of their own, which can be killed, on a network that loses


class AcrossStage(LiveStage):
    """Nodes in several groups; each sends to its groups by turns, or to the one that a test names."""

    def __init__(
        self, membership: Mapping[str, Sequence[Site]], folder: Path, key: Path, *options: str
    ) -> None:
        everyone = {site for sites in membership.values() for site in sites}
        super().__init__(len(everyone), "total-across", folder, key=key)
        self._membership = membership
        self._flags = options
        self._group_of: dict[str, str] = {}
        self._turns = {site: cycle(self._own_groups(site)) for site in self.sites}
        self._named: str | None = None
        # One to each of its groups: only then does every member of a group have all that went to it before.
        self.closing = max(len(self._own_groups(site)) for site in self.sites)

    def send_to(self, group: str, site: Site) -> str:
        self._named = group
        (label,) = self.send(site)
        self._named = None
        return label

    def has(self, site: Site, labels: Iterable[str]) -> bool:
        """Whether a site has delivered those that are for it."""
        return super().has(site, (one for one in labels if site in self._membership[self._group_of[one]]))

    def _own_groups(self, site: Site) -> list[str]:
        return [group for group, sites in self._membership.items() if site in sites]

    def _arguments(self, site: Site) -> list[str]:
        return ["--groups", ",".join(self._own_groups(site)), *self._flags]

    def _hand_in(self, site: Site, bodies: Sequence[bytes]) -> None:
        lines = []
        for body in bodies:
            group = self._named or next(self._turns[site])
            self._group_of[body.partition(b".")[0].decode()] = group
            lines.append(f"@{group} ".encode() + body)
        super()._hand_in(site, lines)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    skip_unless_allowed()
    file = tmp_path_factory.mktemp("key") / "group.key"
    subprocess.run([str(ANTIPHON), "keygen", str(file)], check=True, capture_output=True)
    return file


RING = {"A": ("s0", "s1"), "B": ("s1", "s2", "s3"), "C": ("s0", "s3")}


@pytest.mark.live
@pytest.mark.parametrize(
    ("victim", "options"),
    [("s0", ["--causal"]), ("s1", ["--bodies", "direct"])],
    ids=["coordinator", "primary"],
)
def test_a_node_is_killed_and_returns(tmp_path: Path, key: Path, victim: Site, options: list[str]) -> None:
    with AcrossStage(RING, tmp_path / "trace", key, *options) as stage:
        before = stage.memory()
        stage.trouble(loss=0.02)
        stage.until_delivered(stage.send_all(5))
        stage.send_all(10)
        stage.kill(victim)
        stage.until_delivered(stage.send_all(10), stage.present())
        stage.restart(victim)
        stage.send_all(10)
        conclude(stage, before)


@pytest.mark.live
def test_an_answer_does_not_overtake_what_was_sent_before_its_question(tmp_path: Path, key: Path) -> None:
    """The first message goes to X and the second to Y, which share no member; Y's answers go into X.

    Without causal order a round goes wrong where the first message is lost once and the others are not.
    """
    membership = {"W": ("s0",), "X": ("s2", "s3"), "Y": ("s1",), "Z": ("s1", "s2")}
    with AcrossStage(membership, tmp_path / "trace", key, "--causal") as stage:
        before = stage.memory()
        stage.trouble(loss=0.3)
        for _ in range(20):
            first, second = stage.send_to("X", "s0"), stage.send_to("Y", "s0")
            stage.until_delivered([second], ["s1"])
            third = stage.send_to("Z", "s1")
            stage.until_delivered([first, third], ["s2"])
            assert stage.delivered["s2"].index(first) < stage.delivered["s2"].index(third)
        conclude(stage, before)


@pytest.mark.parametrize(("names", "leavers"), [("ab", "a"), ("abcde", "abc")])
def test_those_who_remain_go_on_when_most_nodes_leave_at_once(names: str, leavers: str) -> None:
    async def body() -> None:
        async with nodes(names) as members:
            await enter(members, {"A": names})
            await asyncio.gather(*(node.wait_for_nodes(len(names)) for node in members.values()))
            await asyncio.gather(*(members[name].leave() for name in leavers))
            stays = members[max(names)]
            message = await stays.group("A").send(b"still here")
            await message.delivered()
            assert stays.counters["absences"] == 0
            async for event in stays.events():
                assert not isinstance(event, CutOff)
                if isinstance(event, Vanished) and event.site == leavers[-1]:
                    assert event.reason == "It left."
                    break

    within(body())
