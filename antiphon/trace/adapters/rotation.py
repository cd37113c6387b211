"""Names of log files: whose log a file is, and which files are older parts of one log.

Logs are rotated as `c1.log`, `c1.log.1`, `c1.log.2.gz`, where a higher number is older, or by dates:
`c1.log-20260102`, `c1-2026-01-02.log`, `c1-2026-01-02.1.log`, where a higher number is newer.
"""

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_DATE: Final = r"\d{4}(?P<dash>-?)(?:0[1-9]|1[0-2])(?P=dash)(?:0[1-9]|[12]\d|3[01])"
_DATED: Final = re.compile(
    rf"(?P<log>.+?)[-._](?P<date>{_DATE}(?:[-T_.]\d\d(?:[-:]?\d\d){{0,2}})?)(?:[-.](?P<number>\d+))?"
    r"(?P<ending>\.[A-Za-z]\w*)?"
)
_NUMBERED: Final = re.compile(r"(?P<log>.+?)\.(?P<number>\d{1,4})")
_ENDING: Final = re.compile(r"(?P<stem>.+)\.[A-Za-z]\w*")
_CURRENT: Final = "~"
"""Stands behind all dates."""


class _Part(NamedTuple):
    """The name of the whole log, and where this file stands in it."""

    log: str
    date: str
    number: int


def stem_of(files: Sequence[Path], index: int) -> str:
    """The log's name without its ending; with its folders', as far as these tell logs of one name apart."""
    names = _names(files)
    stem = _stem(files[index], names)
    folders = {other.resolve().parent.parts for other in files if _stem(other, names) == stem}
    depth = 0
    while len({parts[len(parts) - depth :] for parts in folders}) < len(folders):
        depth += 1
    own = files[index].resolve().parent.parts
    return "/".join((*own[len(own) - depth :], stem))


def oldest_first(files: Sequence[Path]) -> list[Path]:
    """The files in the given order, but the parts of one log together, in the order of their times."""
    names = _names(files)
    logs: dict[tuple[Path, str], list[tuple[str, int, Path]]] = {}
    for file in files:
        part = _part(file, names)
        logs.setdefault((file.parent, part.log), []).append((part.date, part.number, file))
    return [file for parts in logs.values() for _, _, file in sorted(parts)]


def _names(files: Sequence[Path]) -> frozenset[str]:
    return frozenset(_unpacked(file) for file in files)


def _unpacked(file: Path) -> str:
    return file.name.removesuffix(".gz")


def _part(file: Path, names: Collection[str]) -> _Part:
    """A number alone tells a part only behind a log's whole name: `c.1` and `c.2` may be two consumers."""
    name = _unpacked(file)
    if dated := _DATED.fullmatch(name):
        digits = re.sub(r"\D", "", dated["date"]).ljust(14, "0")
        return _Part(dated["log"] + (dated["ending"] or ""), digits, int(dated["number"] or 0))
    numbered = _NUMBERED.fullmatch(name)
    if numbered and (_ENDING.fullmatch(numbered["log"]) or numbered["log"] in names):
        return _Part(numbered["log"], _CURRENT, -int(numbered["number"]))
    return _Part(name, _CURRENT, 0)


def _stem(file: Path, names: Collection[str]) -> str:
    log = _part(file, names).log
    ending = _ENDING.fullmatch(log)
    return ending["stem"] if ending else log
