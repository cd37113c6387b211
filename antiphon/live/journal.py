"""The log `antiphon` for operators: one line per event, at a bounded rate.

Library style: there is a null handler and no configuration; the application decides what is shown. The first
line of each kind is written at once. Lines that follow too soon are counted, and the latest of them is
written with the count when the pause is over. Pauses grow while the kind continues, and a quiet time resets
them. The set of kinds is fixed here, so strangers cannot add any.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from antiphon.core.ids import Group, Site
from antiphon.core.wire import Reason
from antiphon.live import admission, gate
from antiphon.live import events as ev

LOG: Final = logging.getLogger("antiphon")
LOG.addHandler(logging.NullHandler())
FIRST_PAUSE_S: Final = 1.0
"""Pause after the first line of a kind. Raising it costs lines when several members come or go at once."""
LONGEST_PAUSE_S: Final = 300.0
"""Longest pause. Raising it delays the line that shows that a flood continues."""
LOOK_S: Final = 1.0
"""Interval at which the drop counters are checked."""
LONGEST_LINE: Final = 500
"""Longest sentence, in characters; text of peers may be longer."""
SUSPICIOUS: Final = {
    gate.UNKNOWN_KEY: "sealed under a key that is not ours: another key, or an old one",
    gate.FORGED: "forged or damaged: their seals do not open",
    gate.UNSEALED: "not sealed: a process without a key",
    Reason.SEALED.value: "sealed, and this member has no key",
    Reason.VERSION.value: "of another version of the wire format",
    admission.FULL: "of processes that there was no room for",
}
"""Reasons for dropping PDUs that are logged for the operator."""


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
    ev.Resumed: Kind("resumed", logging.INFO),
    ev.Disagreed: Kind("disagreed", logging.ERROR),
    ev.Forked: Kind("forked", logging.ERROR),
    ev.Unavailable: Kind("unavailable", logging.ERROR),
    ev.Refused: Kind("refused", logging.WARNING),
    ev.LeftBehind: Kind("left behind", logging.WARNING),
    ev.CaughtUp: Kind("caught up", logging.INFO),
    ev.HistoryFailed: Kind("history", logging.WARNING),
}


class Pace:
    """When the next line of one kind may be written, and the lines suppressed since the last one."""

    __slots__ = ("count", "latest", "next_s", "pause_s", "timer")

    def __init__(self) -> None:
        self.next_s = 0.0
        self.pause_s = FIRST_PAUSE_S
        self.count = 0
        self.latest = ""
        self.timer: asyncio.TimerHandle | None = None

    def begin(self, now_s: float) -> None:
        """A line is written: double the pause, unless the kind was quiet for as long as the last pause."""
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
        """A pause is over: write one line for everything suppressed."""
        pace.timer = None
        count = pace.count
        pace.begin(asyncio.get_running_loop().time())
        more = "" if count == 1 else f" ({count} of this kind since the last line)"
        self._write(kind, pace.latest + more)

    def _write(self, kind: Kind, sentence: str) -> None:
        LOG.log(kind.level, "%s: %s", printable(self._who), printable(sentence))

    # Events that are only counted

    def watch(self, counts: Callable[[], tuple[Mapping[str, int], int]]) -> None:
        """Check periodically the PDUs dropped, by reason, and how often the keys have changed."""
        drops, changes = counts()
        now_s = asyncio.get_running_loop().time()
        for reason, told in SUSPICIOUS.items():
            kind = Kind(reason, logging.WARNING)
            pace = self._paces.get(kind)
            # During a pause the count continues, so that the next line covers all of it.
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
        """Write the suppressed lines and stop."""
        if self._looking is not None:
            self._looking.cancel()
        for kind, pace in self._paces.items():
            if pace.timer is not None:
                pace.timer.cancel()
                self._catch_up(kind, pace)


def printable(text: str) -> str:
    """A sentence without control characters, whatever a peer has put into it."""
    cut = text if len(text) <= LONGEST_LINE else text[:LONGEST_LINE] + "…"
    if cut.isprintable():
        return cut
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in cut)
