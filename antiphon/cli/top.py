"""`antiphon top`: all members of a live group on one screen, as each reports itself."""

import asyncio
import contextlib
import math
import signal
import time
from typing import Annotated, Any, Final, Literal

from cyclopts import Parameter
from rich.live import Live
from rich.table import Table
from rich.text import Text

from antiphon.cli.console import data, print_json
from antiphon.cli.live_options import Insecure, Key, Network
from antiphon.core.errors import AntiphonError, UsageError
from antiphon.live.onlooker import Onlooker, Sight
from antiphon.live.status import PeerStatus
from antiphon.report.escape import clean

MEETING_S: Final = 3.0
"""How long to look for members before reporting that there are none."""
LEAST_EVERY_S: Final = 0.3
"""Shortest interval: members answer four times a second at most."""
REASONS_SHOWN: Final = 5
COLUMNS: Final = (
    "member", "up", "sees", "sent/s", "got/s", "MB/s", "again/s", "unread", "busy", "absent", "refused",
    "waits for",
)  # fmt: skip


LEFT: Final = frozenset({"member", "waits for"})


def top(
    group: Annotated[str, Parameter(help="the group to look at; with several groups, their cluster")],
    /,
    *,
    network: Network = "loopback",
    key: Key = None,
    insecure: Insecure = False,
    every: Annotated[float, Parameter(help="seconds between looks")] = 1.0,
    seconds: Annotated[
        float | None, Parameter(help="end after this many seconds; by default run until Ctrl-C")
    ] = None,
    json: Annotated[bool, Parameter(help="print a JSON object for each look", negative="")] = False,
) -> int:
    """Show the members of a group that runs: what each sends and delivers in a second, how much its
    application has not read, how busy that is, which member it waits for, and which process it refused. It is
    no member, so the group never waits for it. If the output is not a terminal, the last look is printed at
    the end.

    Example: antiphon top chat
    """
    if not (LEAST_EVERY_S <= every < math.inf and (seconds is None or 0 < seconds < math.inf)):
        raise UsageError(f"A look takes {LEAST_EVERY_S} s at least, and times are positive.")
    if seconds is None and not json and not data.is_terminal:
        seconds = MEETING_S
    onlooker = Onlooker(group, network=network, key=key, insecure=insecure)
    asyncio.run(_Screen(group, onlooker, every, json=json).show(seconds))
    return 0


class _Screen:
    """Asks again and again, and shows the answers."""

    def __init__(self, group: str, onlooker: Onlooker, every_s: float, *, json: bool) -> None:
        self._group = group
        self._onlooker = onlooker
        self._every_s = every_s
        self._json = json

    async def show(self, seconds: float | None) -> None:
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        begin_s = time.monotonic()
        is_screen = data.is_terminal and not self._json
        live = Live(console=data, auto_refresh=False, screen=is_screen) if is_screen else None
        async with self._onlooker as onlooker:
            with contextlib.nullcontext() if live is None else live:
                while not ended.is_set():
                    onlooker.ask()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(ended.wait(), self._every_s)
                    passed_s = time.monotonic() - begin_s
                    self._require_somebody(passed_s)
                    if live is not None:
                        live.update(self._table(), refresh=True)
                    elif self._json:
                        print_json(self._look())
                    if seconds is not None and passed_s >= seconds:
                        break
        if not self._json:
            data.print(self._table())

    def _require_somebody(self, passed_s: float) -> None:
        if self._onlooker.sights or passed_s < MEETING_S:
            return
        if self._onlooker.has_wrong_key:
            raise AntiphonError(
                f"The members of '{clean(self._group)}' have another key, or none.",
                "Give --key the group's key file, or leave it out where the group has none.",
            )
        raise AntiphonError(
            f"No member of '{clean(self._group)}' answers.",
            "Is it the right group, network and key? Members of releases before 'top' do not answer.",
        )

    # Screen

    def _look(self) -> dict[str, Any]:
        sights = sorted(self._onlooker.sights.items())
        return {"group": self._group, "members": {site: _figures(sight) for site, sight in sights}}

    def _table(self) -> Table:
        sights = sorted(self._onlooker.sights.items())
        orders = ", ".join(sorted({clean(sight.status.order) for _, sight in sights}))
        title = f"{clean(self._group)}: {len(sights)} members answer ({orders})"
        table = Table(title=Text(title), box=None, padding=(0, 1, 0, 0), title_justify="left")
        for column in COLUMNS:
            justify: Literal["left", "right"] = "left" if column in LEFT else "right"
            table.add_column(column, justify=justify, no_wrap=True, min_width=len(column))
        for site, sight in sights:
            table.add_row(*(Text(cell) for cell in _row(site, sight)))
        reasons = [f"{site}: {sight.status.refusal}" for site, sight in sights if sight.status.refusal]
        if reasons:
            table.caption = Text("\n".join(map(clean, reasons[:REASONS_SHOWN])))
        return table


def _figures(sight: Sight) -> dict[str, Any]:
    status = sight.status
    return {
        "order": status.order,
        "uptime_s": status.uptime_ms / 1000,
        "members": status.members,
        "sent_per_s": round(sight.rate("admitted"), 1),
        "delivered_per_s": round(sight.rate("delivered"), 1),
        "delivered_bytes_per_s": round(sight.rate("delivered_bytes"), 1),
        "repeated_per_s": round(sight.rate("repeated"), 1),
        "reader_lag": status.reader_lag,
        "reader_busy": round(sight.rate("reader_busy_ms") / 1000, 3),
        "absences": status.absences,
        "refusals": status.refusals,
        "refusal": status.refusal,
        "peers": {peer.site: _peer(peer) for peer in status.peers},
    }


def _peer(peer: PeerStatus) -> dict[str, Any]:
    return {
        "lag": None if peer.lag < 0 else peer.lag,
        "round_trip_s": None if peer.round_trip_us < 0 else peer.round_trip_us / 1e6,
        "lost": None if peer.lost < 0 else peer.lost,
        "holding_up": peer.is_holding_up,
        "held_up_s": peer.held_up_ms / 1000,
    }


def _row(site: str, sight: Sight) -> tuple[str, ...]:
    status = sight.status
    return (
        clean(site),
        _span(status.uptime_ms / 1000),
        str(status.members),
        _short(sight.rate("admitted")),
        _short(sight.rate("delivered")),
        f"{sight.rate('delivered_bytes') / 1e6:.1f}",
        _short(sight.rate("repeated")),
        _short(status.reader_lag),
        f"{min(1.0, sight.rate('reader_busy_ms') / 1000):.0%}",
        str(status.absences),
        _short(status.refusals),
        _waited_for(sight),
    )


def _waited_for(sight: Sight) -> str:
    """The member that it has waited for most since the last look, and the share of the time."""
    before = {peer.site: peer.held_up_ms for peer in sight.before.peers}
    grown = [(peer.held_up_ms - before.get(peer.site, 0), peer) for peer in sight.status.peers]
    span_ms = sight.status.uptime_ms - sight.before.uptime_ms
    waited_ms, peer = max(grown, key=lambda each: each[0], default=(0, None))
    if peer is None or waited_ms <= 0 or span_ms <= 0:
        return ""
    return f"{clean(peer.site)} {min(1.0, waited_ms / span_ms):.0%}"


def _short(count: float) -> str:
    """A count in few characters.

    >>> [_short(each) for each in (0, 999.4, 1000, 65_400, 7_000_000)]
    ['0', '999', '1.0k', '65k', '7.0M']
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.{1 if count < 10 * size else 0}f}{unit}"
    return f"{count:.0f}"


def _span(seconds: float) -> str:
    """A time in one unit.

    >>> [_span(each) for each in (7, 90, 7200, 200_000)]
    ['7s', '1m', '2h', '2d']
    """
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"
