"""A compact notation for tiny traces, used by the tables of cases and by the kept histories.

A history is a few lines. Each site has one line, its log from left to right::

    # what it shows
    groups: g=a,b h=b,c
    expect: total 1 fifo 2
    a: !a0@g a0 b0 -
    b: !b0>a,b ?a0 b0 a0 =b0

A message is its sender and number, `a0`; `a0..2` is a batch of three. Alone it is delivered; `!` sends it,
to the group after `@` or to the destinations after `>`; `?` receives it, `=` declares it stable, `~` discards
it. `-` is an absence, `+` a return; `a0|b0` are two rows of one step; `a0%p` is of the domain p. What is not
named under `expect` is expected not to be violated.
"""

import re
from pathlib import Path
from typing import Final

from antiphon.core.recording import PROPERTIES, Kind, Property
from antiphon.trace.schema import Event, Run

_TOKEN: Final = re.compile(
    r"(?P<mark>[!?=~]?)(?P<sender>[a-z]+)(?P<first>\d+)(?:\.\.(?P<last>\d+))?"
    r"(?:@(?P<group>\w+))?(?:>(?P<destinations>[\w,]*))?(?:%(?P<domain>\w+))?"
)
_KINDS: Final[dict[str, Kind]] = {
    "": "deliver",
    "!": "send",
    "?": "receive",
    "=": "stable",
    "~": "discard",
    "-": "absent",
    "+": "present",
}


def history(text: str, name: str = "run") -> tuple[list[Event], Run, dict[Property, int]]:
    """The events, the run (promising everything) and the expected count of every property."""
    events: list[Event] = []
    groups: dict[str, tuple[str, ...]] | None = None
    expected: dict[Property, int] = dict.fromkeys(PROPERTIES, 0)
    for line in text.splitlines():
        key, _, rest = line.partition("#")[0].strip().partition(":")
        if key == "groups":
            pairs = [pair.split("=") for pair in rest.split()]
            groups = {group: tuple(filter(None, sites.split(","))) for group, sites in pairs}
        elif key == "expect":
            words = rest.split()
            for word, count in zip(words[::2], words[1::2], strict=True):
                assert word in expected
                expected[word] = int(count)
        elif key:
            events += [
                _event(name, key, step, token)
                for step, tokens in enumerate(rest.split())
                for token in tokens.split("|")
            ]
    return events, Run(name, None, PROPERTIES, groups), expected


def _event(run: str, site: str, step: int, token: str) -> Event:
    if token in ("-", "+"):
        return Event(run, site, step, _KINDS[token])
    match = _TOKEN.fullmatch(token)
    assert match is not None, f"{token!r} is not in the notation"
    first, last, chosen = int(match["first"]), match["last"], match["destinations"]
    count = None if last is None else int(last) - first + 1
    destinations = None if chosen is None else tuple(filter(None, chosen.split(",")))
    kind = _KINDS[match["mark"]]
    return Event(
        run,
        site,
        step,
        kind,
        match["sender"],
        first,
        count,
        match["group"],
        destinations,
        domain=match["domain"],
    )


def kept_histories() -> dict[str, str]:
    """The texts in tests/kept by name: instructive histories, and that of every bug ever found."""
    return {path.stem: path.read_text() for path in sorted((Path(__file__).parent / "kept").glob("*.txt"))}
