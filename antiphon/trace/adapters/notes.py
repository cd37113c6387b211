"""Sentences about what a log cannot tell, and which promises it has evidence for."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from antiphon.core.recording import Property

NAMES_SHOWN: Final = 6
MOST_SHARED: Final = 4
"""Members of a consumer group share less than one message in this many, after rebalances. Raising it takes
fewer logs for a group's."""


class Evidence(NamedTuple):
    """What a run's records show about its sends."""

    has_sends: bool
    tied_sends: int
    """Sends that share their place with an earlier one of the same sender."""
    has_unsent: bool
    """Whether a message has neither a number nor a send."""
    split: bool = False
    """Whether consumers share a domain and hardly any message, as the members of a consumer group do."""
    merged: bool = False
    """Whether one site stands for several files, whose lines have no order among them."""


def judgeable(promises: Iterable[Property], evidence: Evidence) -> tuple[tuple[Property, ...], list[str]]:
    """The promises that the log has evidence for, and a sentence for each reason why others have none."""
    kept, notes = list(promises), list[str]()
    if not evidence.has_sends:
        notes.append("No line is a send, so what was lost, or delivered and never sent, cannot be judged.")
        kept = [name for name in kept if name not in ("integrity", "atomicity")]
    if "fifo" in kept and evidence.tied_sends:
        notes.append(
            f"{evidence.tied_sends} sends share their place with another one, so the order in which they "
            "were sent is not known, and fifo is not promised."
        )
        kept.remove("fifo")
    if "fifo" in kept and evidence.has_unsent and not evidence.has_sends:
        notes.append("Messages have ids and no numbers, so the order in which they were sent is not known.")
        kept.remove("fifo")
    if "atomicity" in kept and evidence.split:
        kept.remove("atomicity")
    if "fifo" in kept and evidence.merged:
        notes.append(
            "One site stands for several files, and the order of lines in different files is not known, so "
            "fifo is not promised: import the files without --site to judge it."
        )
        kept.remove("fifo")
    return tuple(kept), notes


def group_note(domain: str, sites: Sequence[str]) -> str:
    """Sites that share a domain but hardly any message are most likely members of one consumer group."""
    names = ", ".join(sites[:NAMES_SHOWN]) + (", ..." if len(sites) > NAMES_SHOWN else "")
    return (
        f"{names} share {domain} and hardly any message, so what one of them lacks proves nothing: "
        "--site NAME takes them as one consumer group, --destinations everyone as consumers of all."
    )


def hole_note(file: Path, count: int) -> str:
    lines = (
        "1 line that cannot be used may have been a record"
        if count == 1
        else (f"{count} lines that cannot be used may have been records")
    )
    return f"In {file} {lines}: what the sites of this file lack proves nothing."


def name_note(site: str, files: Sequence[Path]) -> str:
    """A site that lines of several files name: rotated logs, or two hosts with one name."""
    return (
        f"{site} is named in {len(files)} files ({files[0]}, {files[1]}{', ...' if len(files) > 2 else ''}), "
        "which are read one after the other: if they come from two hosts, give each a name of its own."
    )


def is_split(shares: Mapping[str, tuple[int, int]]) -> bool:
    """Whether sites of one domain look like one consumer group.

    `shares` has for each site how many messages it delivered, and how many of those another site did, too.
    """
    return len(shares) > 1 and all(MOST_SHARED * shared <= delivered for delivered, shared in shares.values())


def clock_note(file: Path, count: int) -> str:
    return (
        f"In {file} {count} lines have an earlier time than the site's line before: its clock was set back, "
        "or two hosts write under one name."
    )
