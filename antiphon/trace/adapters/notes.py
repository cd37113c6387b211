"""Sentences about what a log cannot tell, and which promises it has evidence for."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from antiphon.core.recording import Property

NAMES_SHOWN: Final = 6
MOST_SHARED: Final = 4
"""Members of a consumer group share less than one message in this many, after rebalances. Raising it takes
fewer logs for a group's."""
LEAST_STRANGERS: Final = 4
"""Sends and deliveries without a message in common that suggest different names. Raising it takes fewer
logs for such."""
LEAST_APART: Final = 4
"""Messages that each of two consumers delivered, if they are taken for members of a group although others
share what they deliver. Raising it takes fewer logs for a group's."""
MOST_COMPARED: Final = 64
"""Consumers of a domain that are compared with one another, the first by name. Raising it costs time."""


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
    unreached: bool = False
    """Whether consumers got messages older than the first one that a domain's log of sends reaches."""
    strangers: bool = False
    """Whether there are sends and deliveries, and no message has both."""
    astray: bool = False
    """Whether sends name the queues that they were routed to, and no consumer is named like any of them."""
    undecided: bool = False
    """Whether messages have no domain that a record tells, and sites read some of the domains alone."""
    unordered: int = 0
    """Messages that were sent and delivered, and whose domain no record tells, although there are domains."""


def judgeable(promises: Iterable[Property], evidence: Evidence) -> tuple[tuple[Property, ...], list[str]]:
    """The promises that the log has evidence for, and a sentence for each reason why others have none."""
    kept, notes = list(promises), list[str]()
    if not evidence.has_sends:
        notes.append("No line is a send, so what was lost, or delivered and never sent, cannot be judged.")
        kept = [name for name in kept if name not in ("integrity", "atomicity")]
    if evidence.strangers:
        notes.append(
            "No message that was sent was delivered: are they named alike in all logs? What was lost, or "
            "delivered and never sent, cannot be judged."
        )
        kept = [name for name in kept if name not in ("integrity", "atomicity")]
    if "atomicity" in kept and evidence.astray:
        notes.append(
            "No consumer is named like a queue that messages were routed to, so what was lost cannot be "
            "judged."
        )
        kept.remove("atomicity")
    if "fifo" in kept and evidence.tied_sends:
        notes.append(
            f"{evidence.tied_sends} sends share their place with another one, so the order in which they "
            "were sent is not known, and fifo is not promised."
        )
        kept.remove("fifo")
    if "fifo" in kept and evidence.unordered:
        notes.append(
            f"Delivered messages whose domain no record tells: {evidence.unordered}. Their order cannot be "
            "judged, so fifo is not promised."
        )
        kept.remove("fifo")
    if "fifo" in kept and evidence.has_unsent and not evidence.has_sends:
        notes.append("Messages have ids and no numbers, so the order in which they were sent is not known.")
        kept.remove("fifo")
    if "atomicity" in kept and (evidence.split or evidence.undecided):
        kept.remove("atomicity")
    if "integrity" in kept and evidence.unreached:
        kept.remove("integrity")
    if "fifo" in kept and evidence.merged:
        notes.append(
            "One site stands for several files, and the order of lines in different files is not known, so "
            "fifo is not promised: import the files without --site to judge it."
        )
        kept.remove("fifo")
    return tuple(kept), notes


def group_note(domain: str | None, sites: Sequence[str]) -> str:
    """Sites that share a domain but hardly any message are most likely members of one consumer group."""
    names = ", ".join(sites[:NAMES_SHOWN]) + (", ..." if len(sites) > NAMES_SHOWN else "")
    return (
        f"{names} share {'' if domain is None else f'{domain} and '}hardly any message, so what one of them "
        "lacks proves nothing: --site NAME takes them as one consumer group, --destinations everyone as "
        "consumers of all."
    )


def undecided_note(group: str | None, count: int, example: str, sites: Collection[str]) -> str:
    """Messages that some sites may have lost, since no record says which domain they belong to."""
    known = sorted(sites)
    names = ", ".join(known[:NAMES_SHOWN]) + (", ..." if len(known) > NAMES_SHOWN else "")
    where = "which domain" if group is None else f"which domain of {group}"
    belong = (
        f"1 message ({example}) belongs" if count == 1 else f"{count} messages (such as {example}) belong"
    )
    return (
        f"No record tells to {where} {belong}, so what {names} lost is not judged: --site NAME takes all "
        "consumers as one group."
    )


def torn_note(count: int, example: str) -> str:
    """Messages whose records contradict each other: a trace has one domain for each."""
    messages = f"1 message, {example}," if count == 1 else f"{count} messages, such as {example},"
    return f"The records of {messages} name several domains: that of the send counts, or else none."


def reach_note(domain: str, first_sent: int, first_delivered: int) -> str:
    """The log of sends begins behind what was delivered: its older part was deleted, or is not here."""
    return (
        f"The sends of {domain} are known from number {first_sent} on, and {first_delivered} was delivered: "
        "what was delivered and never sent cannot be judged."
    )


def repeat_note(domain: str, count: int) -> str:
    """The system gives a number once: more than one send of it tells of two logs, or of two lives."""
    sends = "1 send repeats" if count == 1 else f"{count} sends repeat"
    return (
        f"{sends} a number of {domain}: either its log is here twice, or {domain} was made anew, and then "
        "two messages of one number count as one: import its lives apart."
    )


def empty_note(file: Path) -> str:
    return f"{file} holds no record: what a consumer lacks that logged nothing is not judged."


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


def members(sites: Sequence[str], both: Any) -> list[str]:
    """The sites that look like members of a consumer group: hardly any message was delivered to two of them.

    `both` is a matrix: for each two sites the messages that both delivered, and in its diagonal each site's.
    """
    held = np.diagonal(both)
    least = np.minimum(held[:, None], held[None, :])
    pairs = np.triu(least > 0, 1)
    apart = pairs & (both * MOST_SHARED <= least)
    if (apart != pairs).any():
        apart &= least >= LEAST_APART
    found = apart.any(0) | apart.any(1)
    return [site for site, is_member in zip(sites, found.tolist(), strict=True) if is_member]


def clock_note(file: Path, count: int, *, is_ordered: bool) -> str:
    lines = "1 line has" if count == 1 else f"{count} lines have"
    found = (
        f"In {file} {lines} an earlier time than the site's line before: its clock was set back, or two "
        "hosts write under one name."
    )
    return f"{found} The mapping orders its rows by a column, not by their lines." if is_ordered else found
