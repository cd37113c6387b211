"""A tag sequencer in a process of its own: it numbers the tags of several groups, and knows none of them.

    async with TagServer(open_channel("tags", network, keys, insecure=False)) as server:
        await server.failed()

Members name it with `Total(outside="tags")`. It needs no state on disk: after a restart the members of all
its groups tell it the numbers that they know.
"""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final

from antiphon.core import effects as fx
from antiphon.core.errors import AntiphonError
from antiphon.core.ids import Site
from antiphon.core.inputs import Start
from antiphon.core.packing import Packed
from antiphon.core.time import MILLISECOND_NS
from antiphon.live.counters import Counters
from antiphon.live.errors import NameTakenError
from antiphon.live.host import Bystander
from antiphon.live.meeting import meet_others
from antiphon.live.member import Member
from antiphon.live.poison import PoisonRing
from antiphon.live.tag_channel import CODEC, ON_CHANNEL, SEQUENCER, TERMS, TagChannel
from antiphon.live.transport import Transport
from antiphon.protocols.dpg.services.tag_sequencer import TagSequencerSite

MOST_TOLD: Final = 32
"""Different reasons for refusals that are reported. Raising it costs lines in a flood."""


class NoApplication:
    """Implements `Reader` and `Listener`: a sequencer delivers nothing."""

    pressed = False

    def __init__(self, failing: "asyncio.Future[None]") -> None:
        self._failing: Final = failing

    def delivered(self, effect: fx.Deliver, bodies: Packed, places: Sequence[int] | None) -> None: ...
    def passed(self, effect: fx.Deliver, count: int) -> None: ...
    def hand_out(self) -> bool:
        return True

    def wake(self) -> None: ...
    def has_room(self) -> bool:
        return True

    def admitted(self, effect: fx.Admitted) -> None: ...
    def stable(self, effect: fx.Stable) -> None: ...
    def reached(self, effect: fx.Reached) -> None: ...
    def unstable(self, effect: fx.Unstable) -> None: ...
    def noted(self, effect: fx.Absent | fx.Present | fx.Appeared | fx.Vanished | fx.CaughtUp) -> None: ...
    def doubted(self, effect: fx.Doubt) -> None: ...
    def grouped(self, effect: fx.Joined | fx.Left) -> None: ...
    def history_failed(self, reason: str) -> None: ...
    def begun_anew(self, reason: str) -> None: ...
    def stepped(self) -> None: ...
    def failed(self, error: BaseException) -> None:
        if not self._failing.done():
            self._failing.set_exception(error)


class TagServer(Bystander):
    """The sequencer of one channel."""

    def __init__(self, channel: TagChannel, tell: Callable[[str], None] = lambda _sentence: None) -> None:
        """`tell` gets a sentence for each kind of process that is refused."""
        self._channel: Final = channel
        self._tell: Final = tell
        self._told: set[str] = set()
        self._transport: Transport | None = None
        self._member: Member | None = None
        self._failing: asyncio.Future[None] | None = None

    async def __aenter__(self) -> "TagServer":
        channel, counters, poison = self._channel, Counters(), PoisonRing()
        machine = channel.network.machine
        self._failing = asyncio.get_running_loop().create_future()
        self._transport = transport = Transport(
            site=ON_CHANNEL, group=channel.group, codec=CODEC, network=channel.network, keys=channel.keys,
            counters=counters, host=self, terms=TERMS, poison=poison,
        )  # fmt: skip
        nothing = NoApplication(self._failing)
        self._member = member = Member(
            site=SEQUENCER, group=channel.group, transport=transport, recorder=None, reader=nothing,
            listener=nothing, counters=counters, poison=poison, machine=machine,
            build=lambda _failed: TagSequencerSite(SEQUENCER, machine.random()),
        )  # fmt: skip
        try:
            member.listen()
            await meet_others(transport, machine, self._goes_on)
            member.start(Start(machine.wall_ns() // MILLISECOND_NS))
            transport.take_part()
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _goes_on(self) -> bool:
        """Whether nothing has failed; raises what has."""
        assert self._failing is not None
        if self._failing.done():
            self._failing.result()
        return True

    async def failed(self) -> None:
        """Wait until it cannot go on, and raise why."""
        assert self._failing is not None
        await self._failing

    @property
    def numbered(self) -> int:
        """How many tags it has numbered."""
        return 0 if self._member is None else self._member.figures()["numbered"]

    def kill(self) -> None:
        """End without a word, as a killed process does."""
        self._close(farewell=False)

    def _close(self, *, farewell: bool = True) -> None:
        assert self._member is not None
        assert self._transport is not None
        self._member.stop()
        self._transport.close(farewell=farewell)

    def refused(self, site: Site, reason: str) -> None:  # noqa: ARG002 - names are random here
        """Report each reason once, and only the first few: any process can invent reasons."""
        if reason not in self._told and len(self._told) < MOST_TOLD:
            self._told.add(reason)
            self._tell(reason)

    def namesake(self, address: str) -> None:
        """The members follow another sequencer of this name."""
        self._fail(
            NameTakenError(
                f"'{self._channel.name}' has a tag sequencer already: a process at {address}.",
                "Give it a name of its own, and name it in its groups.",
            )
        )

    def _fail(self, error: AntiphonError) -> None:
        assert self._failing is not None
        if not self._failing.done():
            self._failing.set_exception(error)
