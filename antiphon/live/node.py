"""A node that is in several groups at once: messages that two nodes both deliver have one order.

    async with antiphon.node("shop", name="alice") as node:
        orders = await node.join("orders")
        stock = await node.join("stock")
        await orders.send(b"one book")
        async for message in node:
            print(message.group, message.sender, message.body)

The nodes of one `cluster` know each other. Each joins the groups that it wants, and can send to all of them.
"""

from collections.abc import AsyncIterator, Callable, Generator, Iterable
from types import TracebackType
from typing import Any, Final

from antiphon.core.ids import Group as GroupName
from antiphon.core.ids import Site
from antiphon.live.events import Event
from antiphon.live.group import Group
from antiphon.live.joining import join
from antiphon.live.messages import Batch, Body, Message, Presence
from antiphon.live.peers import Peer

ACROSS: Final = "total-across"


def node(cluster: GroupName, *, name: Site | None = None, **options: Any) -> "Node":
    """A node of a cluster: `async with antiphon.node("shop", name="alice") as node`, or `await` and `leave`.

    The options are those of `antiphon.join`: causal (causal order across groups, too), bodies and bypass,
    which must be the same at all nodes of a cluster; network, key, insecure, trace, run and limits.
    """
    return Node(join(cluster, name=name, order=ACROSS, **options))


class Node:
    """One process in several groups, made by `node`. It wraps one `Group` with the order 'total-across'."""

    def __init__(self, whole: Group) -> None:
        self._whole = whole

    def __await__(self) -> Generator[Any, None, "Node"]:
        """Join without a block: `node = await antiphon.node(...)`. The caller must call `leave`."""
        return self.__aenter__().__await__()

    async def __aenter__(self) -> "Node":
        await self._whole.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._whole.__aexit__(kind, error, trace)

    @property
    def name(self) -> Site:
        return self._whole.name

    @property
    def groups(self) -> frozenset[GroupName]:
        """The groups that this node is in."""
        return self._whole.groups

    @property
    def nodes(self) -> frozenset[Site]:
        """The nodes of the cluster that count, this one included."""
        return self._whole.members

    async def wait_for_nodes(self, count: int) -> None:
        """Wait until `count` nodes count, this one included."""
        await self._whole.wait_for_members(count)

    def presence(self) -> AsyncIterator[Presence]:
        """Yields nodes that appear and vanish."""
        return self._whole.presence()

    async def join(self, group: GroupName) -> "Membership":
        """Join one more group. Its messages are delivered here from then on."""
        await self._whole.enter(group)
        return Membership(self._whole, group)

    async def leave(self, group: GroupName | None = None) -> None:
        """Leave a group; without a name, leave all groups and the cluster."""
        if group is None:
            await self._whole.leave()
        else:
            await self._whole.exit(group)

    def group(self, group: GroupName) -> "Membership":
        """A group to send to; this node need not be in it."""
        return Membership(self._whole, group)

    async def finish(self) -> None:
        """End the membership because the whole run is over; see `Group.finish`."""
        await self._whole.finish()

    def __aiter__(self) -> AsyncIterator[Message]:
        """Yields the messages of all groups that this node is in, in the one order."""
        return self._whole.__aiter__()

    def events(self) -> AsyncIterator[Event]:
        """Yields messages, and between them other events; see `Group.events`."""
        return self._whole.events()

    def batches(self) -> AsyncIterator[Batch]:
        """Yields batches, messages as they travelled together: much less work per message."""
        return self._whole.batches()

    async def for_each_batch(self, function: Callable[[Batch], None]) -> None:
        """Call a function with each batch; see `Group.for_each_batch`."""
        await self._whole.for_each_batch(function)

    @property
    def peers(self) -> dict[Site, Peer]:
        """The other nodes, as this node sees them; see `Group.peers`."""
        return self._whole.peers

    @property
    def counters(self) -> dict[str, Any]:
        return self._whole.counters


class Membership:
    """One group of a node, to send to and to leave."""

    def __init__(self, whole: Group, group: GroupName) -> None:
        self._whole = whole
        self.group: Final = group

    async def send(self, body: Body) -> Message:
        """Multicast to all members of the group. Waits while the group cannot take more."""
        return await self._whole.send(body, group=self.group)

    async def send_many(self, bodies: Iterable[Body]) -> None:
        """Multicast several messages, in this order."""
        await self._whole.send_many(bodies, group=self.group)

    async def send_records(self, records: Body, size: int) -> None:
        """Multicast messages of one size that lie one after another in one buffer."""
        await self._whole.send_records(records, size, group=self.group)

    async def leave(self) -> None:
        """Leave this group."""
        await self._whole.exit(self.group)
