"""Explanations of violations: let this be so; because of that; but this; a contradiction.

The form is Elle's (Alvaro & Kingsbury, VLDB 2020). Each function turns facts (sites, steps, messages) into
one explanation, however the facts were found: the pure checkers and the compiled audit share these
sentences.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from antiphon.core.ids import MessageId, Site
from antiphon.core.recording import Kind
from antiphon.trace.schema import ACCEPTED

NAMES_SHOWN: Final = 6
"""Sites, arcs or links of a chain that are spelled out; the rest is counted."""


VERBS: Final[Mapping[Kind, str]] = {"send": "sent", "receive": "received", "deliver": "delivered"}


class Arc(NamedTuple):
    """At `site`, `first` (at `first_step`) was directly followed by `second` (at `second_step`)."""

    site: Site
    first: MessageId
    first_step: int
    second: MessageId
    second_step: int


class Link(NamedTuple):
    """`site` sent, received or delivered `before` (at `before_step`), and later sent `after` (at
    `after_step`)."""

    site: Site
    verb: str
    before: MessageId
    before_step: int
    after: MessageId
    after_step: int


def listed(items: Iterable[str]) -> str:
    """`a, b and c`, or the first few and how many more."""
    words = list(items)
    if not words:
        return "no member"
    if len(words) > NAMES_SHOWN:
        words = [*words[: NAMES_SHOWN - 1], f"{len(words) - NAMES_SHOWN + 1} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def unsent(site: Site, step: int, message: MessageId) -> str:
    return (
        f"Let {site} deliver {message} (step {step}). Because what is delivered has been sent, some site "
        f"sent {message}. But no site of the run logged that send: a contradiction."
    )


def misaddressed(
    site: Site, step: int, message: MessageId, sent_by: Site, sent_step: int, destinations: Iterable[Site]
) -> str:
    return (
        f"Let {site} deliver {message} (step {step}). Because {sent_by} sent {message} (step {sent_step}) to "
        f"{listed(sorted(destinations))}, only those may deliver it. But {site} is not among them: "
        "a contradiction."
    )


def duplicate(site: Site, first_step: int, step: int, message: MessageId) -> str:
    return (
        f"Let {site} deliver {message} (step {first_step}). Because a message is delivered at most once, "
        f"{site} never delivers it again. But {site} delivers {message} again (step {step}): a contradiction."
    )


def fifo(site: Site, higher: MessageId, higher_step: int, message: MessageId, step: int) -> str:
    return (
        f"Let {site} deliver {higher} (step {higher_step}). Because {message.sender} numbered {message} "
        f"before {higher}, {site} delivers {message} first or not at all. But {site} delivers {message} only "
        f"later (step {step}): a contradiction."
    )


def causal(
    site: Site, effect: MessageId, effect_step: int, cause: MessageId, cause_step: int, chain: Sequence[Link]
) -> str:
    """`chain` leads from the cause to the effect, each link's `after` being the next one's `before`."""
    links = listed(
        f"{link.site} {link.verb} {link.before} (step {link.before_step}) before it sent {link.after} "
        f"(step {link.after_step})"
        for link in chain
    )
    return (
        f"Let {site} deliver {effect} (step {effect_step}). Because {links}, {cause} precedes {effect}. "
        f"But {site} delivers {cause} only afterwards (step {cause_step}): a contradiction."
    )


def total(arcs: Sequence[Arc], component_size: int) -> str:
    """`arcs` form a cycle: each one's `second` is the next one's `first`."""
    steps = listed(
        f"{arc.site} delivers {arc.first} (step {arc.first_step}) before {arc.second} "
        f"(step {arc.second_step})"
        for arc in arcs
    )
    first = arcs[0].first
    size = f"{component_size} messages are entangled in this way"
    return (
        f"Let all sites deliver in one order. Because {steps}, {first} comes before itself in that order. "
        f"But no message comes before itself: a contradiction. {size}."
    )


def pairwise(arc: Arc, against: Arc) -> str:
    """Two sites deliver the same two messages, the second site the other way round."""
    return (
        f"Let {arc.site} deliver {arc.first} (step {arc.first_step}) before {arc.second} (step "
        f"{arc.second_step}). Because any two sites deliver what they share in one order, {against.site} "
        f"does so too. But {against.site} delivers {against.first} (step {against.first_step}) before "
        f"{against.second} (step {against.second_step}): a contradiction."
    )


def missing(site: Site, message: MessageId, elsewhere: Site, elsewhere_step: int) -> str:
    held = (
        f"Let the system accept {message}."
        if elsewhere == ACCEPTED
        else f"Let {elsewhere} deliver {message} (step {elsewhere_step})."
    )
    return (
        f"{held} Because {message} is addressed to {site} too, and {site} was present all through the run, "
        f"{site} delivers it. But {site} never does: a contradiction."
    )


def missing_in_order(
    site: Site,
    message: MessageId,
    first: MessageId,
    first_step: int,
    last: MessageId,
    last_step: int,
    elsewhere: Site,
    elsewhere_step: int,
) -> str:
    """The message lies between the ends of a presence spell in the order that all sites agree on."""
    return (
        f"Let {site} be present from its delivery of {first} (step {first_step}) to that of {last} (step "
        f"{last_step}). Because {elsewhere} delivers {message} (step {elsewhere_step}), it is addressed to "
        f"{site} too, and the agreed order puts it between those two, {site} delivers it in between. "
        f"But {site} does not: a contradiction."
    )


def missing_in_numbers(
    site: Site,
    message: MessageId,
    lower: MessageId,
    lower_step: int,
    upper: MessageId,
    upper_step: int,
    elsewhere: Site,
    elsewhere_step: int,
) -> str:
    """The message lies between two others of its sender that a presence spell holds."""
    return (
        f"Let {site} deliver {lower} (step {lower_step}) and {upper} (step {upper_step}) within one spell of "
        f"presence. Because {elsewhere} delivers {message} (step {elsewhere_step}), it is addressed to "
        f"{site} too, and its sender numbered it between those two, {site} delivers it in that spell. "
        f"But {site} does not: a contradiction."
    )


def _declared(declared_by: Site, kind: str, message: MessageId, step: int) -> str:
    if kind == "discard":
        return f"Let {declared_by} discard {message} (step {step})."
    if kind == "deliver":
        return f"Let {declared_by} deliver {message} (step {step}), as a message that all destinations hold."
    return f"Let {declared_by} declare {message} stable (step {step})."


def never_received(declared_by: Site, kind: str, step: int, message: MessageId, site: Site) -> str:
    """`kind` is the declaration's: stable, discard or, for safe delivery, deliver."""
    return (
        f"{_declared(declared_by, kind, message, step)} Because {message} is addressed to {site}, which was "
        f"present all through the run, {site} had received it by then. But {site} never receives it: "
        "a contradiction."
    )


def received_later(
    declared_by: Site, kind: str, step: int, message: MessageId, site: Site, received_step: int
) -> str:
    """`kind` is the declaration's: stable, discard or, for safe delivery, deliver."""
    what = "delivery" if kind == "deliver" else "declaration"
    late = (
        f"{site} first receives it afterwards (step {received_step})"
        if site == declared_by
        else f"the {what} happened before {site} first received it (step {received_step}), as messages "
        "sent in between show"
    )
    return (
        f"{_declared(declared_by, kind, message, step)} Because {message} is addressed to {site}, which was "
        f"present all through the run, {site} had received it by then. But {late}: a contradiction."
    )


def gap(
    site: Site, lower: MessageId, lower_step: int, upper: MessageId, upper_step: int, first: int, missing: int
) -> str:
    """`missing` numbers from `first` on lie between two that the site delivered in one spell."""
    which = f"{lower.sender}:{first}" if missing == 1 else f"{missing} numbers from {lower.sender}:{first} on"
    return (
        f"Let {site} deliver {lower} (step {lower_step}) and {upper} (step {upper_step}) within one spell of "
        f"presence. Because {lower.sender} numbers its messages without gaps, and no send row says that what "
        f"lies between went elsewhere, {site} delivers that too. But {site} lacks {which}: a contradiction."
    )
