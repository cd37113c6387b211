"""`antiphon node`: one live member; lines in, deliveries out."""

import asyncio
import contextlib
import json as encoding
import logging
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import Parameter

from antiphon.cli.console import one_word, say, shown_body
from antiphon.cli.live_options import (
    CatchUp,
    History,
    HistoryBytes,
    Insecure,
    Key,
    Name,
    Network,
    Options,
    Order,
    Profile,
    RateLimit,
    given,
)
from antiphon.core.errors import UsageError
from antiphon.live.events import CutOff, Happening, Missed, Resumed, Unread, as_presence, sentence
from antiphon.live.group import Group
from antiphon.live.history import USUAL_BYTES
from antiphon.live.joining import join
from antiphon.live.limits import Limits
from antiphon.live.messages import Batch, Message, Presence
from antiphon.live.orders import find_order
from antiphon.live.pieces import LARGEST_MESSAGE_BYTES

LONGEST_LINE: Final = 1 << 20
UNNAMED: Final[dict[type, str]] = {CutOff: "cut-off", Resumed: "resumed", Unread: "unread"}
"""Events that only make sense among messages, by their names in the output."""
LAST_WORDS_S: Final = 2.0
"""How long a node that has left waits for its output to be read."""


def node(
    group: Annotated[str, Parameter(help="the group to join; with --groups the cluster that they are of")],
    /,
    *,
    name: Name = None,
    order: Order = "fifo",
    profile: Profile = None,
    groups: Annotated[
        str | None,
        Parameter(help="with total-across: groups to be in, such as A,B; '@B text' goes to B, others to A"),
    ] = None,
    options: Options = None,
    network: Network = "loopback",
    key: Key = None,
    insecure: Insecure = False,
    rate_bytes_s: RateLimit = None,
    trace: Annotated[Path | None, Parameter(help="folder to append this member's trace to")] = None,
    run: Annotated[str | None, Parameter(help="the run's name in the trace; the group's by default")] = None,
    history: History = None,
    history_bytes: HistoryBytes = USUAL_BYTES,
    catch_up: CatchUp = False,
    addressed: Annotated[
        bool, Parameter(help="a line '@alice,bob text' goes to those members only", negative="")
    ] = False,
    queue: Annotated[
        int, Parameter(help="megabytes of deliveries that may wait to be read from the output")
    ] = 64,
    metrics: Annotated[int | None, Parameter(help="port on which to serve Prometheus metrics")] = None,
    log: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        Parameter(help="show the member's log on stderr, from that level on"),
    ] = None,
    json: Annotated[bool, Parameter(help="print JSON objects, one a line", negative="")] = False,
) -> int:
    """Join a group. Each line of the input is multicast; each delivery is a line of output: its sender, its
    number and its body, after its group where there are several. On a terminal, what cannot be printed is
    shown as its code point; into a pipe or a file, bodies go as they are. Presence changes go to stderr,
    or with --json into the output, in their place. Ends with the input, or on SIGTERM or SIGINT, by a
    clean leave.

    Example: antiphon node chat --name alice
    """
    if queue < 1:
        raise UsageError("The queue holds at least one megabyte.")
    chosen = parse_groups(order, groups, addressed=addressed)
    if log is not None:
        show_log(log)
    member = join(
        group, name=name, order=order, profile=profile, **given(options), network=network, key=key,
        insecure=insecure, trace=trace, run=run, history=history, history_bytes=history_bytes,
        catch_up=catch_up, limits=Limits(queue_bytes=queue << 20, rate_bytes_s=rate_bytes_s),
    )  # fmt: skip
    if asyncio.run(Node(member, groups=chosen, addressed=addressed, json=json).serve(metrics)):
        return 0
    raise KeyboardInterrupt


def show_log(level: str) -> None:
    """Write the log `antiphon` to stderr, from a level on."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("antiphon")
    logger.addHandler(handler)
    logger.setLevel(level.upper())


def parse_groups(order: str, groups: str | None, *, addressed: bool) -> list[str]:
    """The groups that a node joins; none where the order has one group only."""
    found = [] if groups is None else groups.split(",")
    if find_order(order).several != bool(found):
        raise UsageError(
            f"The order '{order}' " + ("knows one group." if found else "is for several groups."),
            hint="Leave --groups out, or choose --order total-across."
            if found
            else "Name some: --groups A,B",
        )
    if found and addressed:
        raise UsageError("A line goes to a group or to some members.", hint="Leave --addressed out.")
    for group in found:
        if not group or " " in group:
            raise UsageError(f"{group!r} is no name for a group here.", hint="Write --groups A,B")
    return found


class Node:
    """A member whose application is a pair of streams."""

    def __init__(self, group: Group, *, groups: Sequence[str] = (), addressed: bool, json: bool) -> None:
        self._group = group
        self._groups = groups
        self._addressed = addressed
        self._json = json
        self._output: Output | None = None
        self._ended = asyncio.Event()
        self._has_joined = False

    async def serve(self, metrics: int | None) -> bool:
        """Run until the input ends, a signal comes, or the member fails; False if it was interrupted.

        A signal during the join, and a second signal during the leave, end it at once.
        """
        working = asyncio.create_task(self._take_part(metrics))
        signals: list[signal.Signals] = []

        def end(number: signal.Signals) -> None:
            signals.append(number)
            if self._has_joined and not self._ended.is_set():
                self._ended.set()
            else:
                working.cancel()

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, end, number)
        try:
            await working
        except asyncio.CancelledError:
            if not signals:
                raise
            return signals[-1] is signal.SIGTERM
        return True

    async def _take_part(self, metrics: int | None) -> None:
        self._output = await Output.open()
        async with self._group as group:
            if metrics is not None:
                from antiphon.live.metrics import serve_metrics

                serve_metrics(group, metrics)
            for each in self._groups:
                await group.enter(each)
            self._has_joined = True
            delivering = asyncio.create_task(self._deliver_json() if self._json else self._deliver())
            reporting = asyncio.create_task(self._report_events())
            sending = asyncio.create_task(self._send())
            signalled = asyncio.create_task(self._ended.wait())
            first = (delivering, sending, signalled)
            done, _ = await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            for task in (sending, signalled):
                task.cancel()
            if delivering not in done:
                await group.leave()
            # Deliveries from before the leave are still written, unless the output is not read.
            await asyncio.wait((delivering, reporting), timeout=LAST_WORDS_S)
            for task in (delivering, reporting):
                task.cancel()
            for task in (delivering, sending):
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _send(self) -> None:
        async for line in input_lines():
            body = line.rstrip(b"\r\n")
            address: str | None = None
            if (self._addressed or self._groups) and body.startswith(b"@"):
                named, _, body = body[1:].partition(b" ")
                address = named.decode(errors="replace")
            try:
                if self._groups:
                    await self._group.send(body, group=address or self._groups[0])
                else:
                    await self._group.send(body, to=address if address is None else address.split(","))
            except UsageError as error:
                if address is None:
                    raise
                say(f"{error.sentence} {error.hint or ''}")

    async def _deliver(self) -> None:
        assert self._output is not None
        line = _shown_line if sys.stdout.isatty() else _text_line
        async for batch in self._group.batches():
            await self._output.write(b"".join(map(line, batch)))

    async def _deliver_json(self) -> None:
        """Write messages, and events in their place between them."""
        assert self._output is not None
        async for item in self._group.event_batches():
            if isinstance(item, Batch):
                await self._output.write(b"".join(map(self._json_line, item)))
            else:
                await self._output.write(_json(_words(item, self._group.name)))

    def _json_line(self, message: Message) -> bytes:
        body = message.body.decode(errors="replace")
        words = {"sender": message.sender, "number": message.number, "body": body}
        if message.group is not None:
            return _json({"group": message.group, **words})
        return _json(words if message.to is None else {**words, "to": sorted(message.to)})

    async def _report_events(self) -> None:
        """Without --json: write events to stderr at once, however slowly the output is read."""
        if not self._json:
            async for event in self._group.presence():
                say(_sentence(event))


def _words(event: Happening, own: str) -> dict[str, object]:
    """One line of JSON for an event."""
    named = as_presence(event, own)
    kind = UNNAMED[type(event)] if named is None else named.kind
    words: dict[str, object] = {"presence": kind, "site": own if named is None else named.site}
    words["reason"] = sentence(event) if named is None else named.reason
    if isinstance(event, Missed) and event.sender is not None:
        words |= {"sender": event.sender, "number": event.number, "count": event.count}
    return words


def _json(value: object) -> bytes:
    return encoding.dumps(value).encode() + b"\n"


def _text_line(message: Message) -> bytes:
    """The body as it was sent. The fields before it cannot be mistaken, whatever a peer's name is."""
    return _prefix(message).encode() + message.body + b"\n"


def _shown_line(message: Message) -> bytes:
    """The same for a terminal, without control characters of the body."""
    return f"{_prefix(message)}{shown_body(message.body)}\n".encode()


def _prefix(message: Message) -> str:
    group = "" if message.group is None else f"{one_word(message.group)} "
    return f"{group}{one_word(message.sender)} {message.number} "


def _sentence(event: Presence) -> str:
    return f"{event.site} {event.kind}" + (f": {event.reason}" if event.reason else "")


class Output:
    """Standard output that does not block the event loop where it could: on a pipe that is not read."""

    def __init__(self, writer: asyncio.StreamWriter | None) -> None:
        self._writer = writer

    @classmethod
    async def open(cls) -> "Output":
        if not _is_pipe(sys.stdout.fileno()):
            return cls(None)
        loop = asyncio.get_running_loop()
        # The loop closes the file that it is given; standard output itself is flushed when the command ends.
        pipe = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, pipe)
        # A write is complete when the kernel has it, so that nothing is lost at the end.
        transport.set_write_buffer_limits(high=0)
        return cls(asyncio.StreamWriter(transport, protocol, None, loop))

    async def write(self, data: bytes) -> None:
        if self._writer is None:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            return
        self._writer.write(data)
        try:
            await self._writer.drain()
        except ConnectionError:
            raise BrokenPipeError from None


async def input_lines() -> AsyncIterator[bytes]:
    """Lines of standard input: without blocking where it is a pipe or a terminal; a file never blocks."""
    if not (_is_pipe(sys.stdin.fileno()) or sys.stdin.isatty()):
        # A line longer than any message is refused, and not read to its end: it may have none.
        while line := sys.stdin.buffer.readline(LARGEST_MESSAGE_BYTES + len(b"\r\n") + 1):
            yield line
        return
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while True:
        try:
            line = await reader.readline()
        except ValueError:
            raise UsageError(f"A line of the input is longer than {LONGEST_LINE} bytes.") from None
        if not line:
            return
        yield line


def _is_pipe(number: int) -> bool:
    mode = os.fstat(number).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
