"""What an operator must know, in the log `antiphon`: one line each, and never a flood of them.

Library style: there is a null handler and no configuration; an application decides what is shown. Of each
kind of line the first is written at once. Those that follow too soon are counted, and the latest of them is
written with their count when the pause is over. Pauses grow while the kind goes on, and a quiet time ends
that. What kinds there are is fixed here, so strangers can make none.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from antiphon.core.ids import Group, Site
from antiphon.core.wire import Reason
from antiphon.live import events as ev
from antiphon.live import gate

LOG: Final = logging.getLogger("antiphon")
LOG.addHandler(logging.NullHandler())
FIRST_PAUSE_S: Final = 1.0
"""Pause after the first line of a kind. Raising it costs lines when several members come or go at once."""
LONGEST_PAUSE_S: Final = 300.0
"""Raising it costs how soon an operator sees that a flood goes on."""
LOOK_S: Final = 1.0
"""How often counters are looked at for what is only counted."""
LONGEST_LINE: Final = 500
"""Characters of a sentence; what peers say may be longer."""
SUSPICIOUS: Final = {
    gate.UNKNOWN_KEY: "sealed under a key that is not ours: another key, or an old one",
    gate.FORGED: "forged or damaged: their seals do not open",
    gate.UNSEALED: "not sealed: a process without a key",
    Reason.SEALED.value: "sealed, and this member has no key",
    Reason.VERSION.value: "of another version of the wire format",
    gate.FULL: "of processes that there was no room for",
}
"""Reasons for which PDUs are dropped that an operator should hear of."""


class Kind(NamedTuple):
    """One kind of line."""

    name: str
    level: int


JOINED: Final = Kind("joined", logging.INFO)
LEFT: Final = Kind("left", logging.INFO)
FAILED: Final = Kind("failed", logging.ERROR)
BEGUN_ANEW: Final = Kind("begun anew", logging.ERROR)
SLOW_READER: Final = Kind("slow reader", logging.WARNING)
STEPPED_ASIDE: Final = Kind("stepped aside", logging.WARNING)
KEY_CHANGED: Final = Kind("key changed", logging.INFO)
HAPPENINGS: Final[dict[type, Kind]] = {
    ev.Appeared: Kind("appeared", logging.INFO),
    ev.Vanished: Kind("vanished", logging.INFO),
    ev.Restarted: Kind("restarted", logging.INFO),
    ev.Missed: Kind("missed", logging.WARNING),
    ev.CutOff: Kind("cut off", logging.WARNING),
    ev.Disagreed: Kind("disagreed", logging.ERROR),
    ev.Unavailable: Kind("unavailable", logging.ERROR),
    ev.Refused: Kind("refused", logging.WARNING),
    ev.LeftBehind: Kind("left behind", logging.WARNING),
    ev.CaughtUp: Kind("caught up", logging.INFO),
    ev.HistoryFailed: Kind("history", logging.WARNING),
}


class Pace:
    """When the next line of one kind may be written, and what was not since the last one."""

    __slots__ = ("count", "latest", "next_s", "pause_s", "timer")

    def __init__(self) -> None:
        self.next_s = 0.0
        self.pause_s = FIRST_PAUSE_S
        self.count = 0
        self.latest = ""
        self.timer: asyncio.TimerHandle | None = None

    def begin(self, now_s: float) -> None:
        """A line is written: the next pause is longer, unless there was quiet for as long as the last."""
        quiet = now_s > self.next_s + self.pause_s
        self.pause_s = FIRST_PAUSE_S if quiet else min(2 * self.pause_s, LONGEST_PAUSE_S)
        self.next_s = now_s + self.pause_s
        self.count = 0


class Journal:
    """One member's lines."""

    def __init__(self, group: Group, site: Site) -> None:
        self._who = f"{site} in {group}"
        self._paces: dict[Kind, Pace] = {}
        self._looked: dict[str, int] = {}
        self._looking: asyncio.TimerHandle | None = None

    def note(self, kind: Kind, sentence: str) -> None:
        """Write a line, at once or after a pause."""
        if not LOG.isEnabledFor(kind.level):
            return
        loop = asyncio.get_running_loop()
        pace = self._paces.setdefault(kind, Pace())
        now_s = loop.time()
        if now_s >= pace.next_s and not pace.count:
            pace.begin(now_s)
            self._write(kind, sentence)
            return
        pace.count += 1
        pace.latest = sentence
        if pace.timer is None:
            pace.timer = loop.call_at(pace.next_s, self._catch_up, kind, pace)

    def happened(self, event: ev.Happening) -> None:
        kind = HAPPENINGS.get(type(event))
        if kind is not None:
            about = getattr(event, "site", None)
            sentence = ev.sentence(event)
            self.note(kind, f"{kind.name}{'' if about is None else f': {about}'}. {sentence}".rstrip())

    def _catch_up(self, kind: Kind, pace: Pace) -> None:
        """A pause is over: what came in it is one line."""
        pace.timer = None
        count = pace.count
        pace.begin(asyncio.get_running_loop().time())
        more = "" if count == 1 else f" ({count} of this kind since the last line)"
        self._write(kind, pace.latest + more)

    def _write(self, kind: Kind, sentence: str) -> None:
        LOG.log(kind.level, "%s: %s", printable(self._who), printable(sentence))

    # What is only counted

    def watch(self, counts: Callable[[], tuple[Mapping[str, int], int]]) -> None:
        """Look now and again at the PDUs dropped, by reason, and at how often the keys have changed."""
        drops, changes = counts()
        now_s = asyncio.get_running_loop().time()
        for reason, told in SUSPICIOUS.items():
            kind = Kind(reason, logging.WARNING)
            pace = self._paces.get(kind)
            # In a pause they go on being counted, so that the next line tells of all of them.
            if pace is None or now_s >= pace.next_s:
                grown = self._grown(reason, drops.get(reason, 0))
                if grown:
                    self.note(kind, f"{grown} PDUs dropped that were {told}.")
        if self._grown("keys", changes):
            self.note(KEY_CHANGED, "a changed key file was taken up.")
        self._looking = asyncio.get_running_loop().call_later(LOOK_S, self.watch, counts)

    def _grown(self, name: str, count: int) -> int:
        before, self._looked[name] = self._looked.get(name, 0), count
        return count - before

    def close(self) -> None:
        """Write what waits, and be done."""
        if self._looking is not None:
            self._looking.cancel()
        for kind, pace in self._paces.items():
            if pace.timer is not None:
                pace.timer.cancel()
                self._catch_up(kind, pace)


def printable(text: str) -> str:
    """One line that steers no terminal, whatever a peer has put into it."""
    cut = text if len(text) <= LONGEST_LINE else text[:LONGEST_LINE] + "…"
    if cut.isprintable():
        return cut
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in cut)
