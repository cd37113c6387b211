"""The effect of a change of membership on the trees, in sentences."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from antiphon.core.ids import Group
from antiphon.protocols.metagroups.agreed import Replacement
from antiphon.protocols.metagroups.changes import Change
from antiphon.protocols.metagroups.formation import Label, label_text
from antiphon.protocols.metagroups.tree import Forest
from antiphon.report.escape import clean

MOST_NAMES: Final = 8
"""Longer lists are cut with a count."""


def sentences(before: Forest, change: Change) -> Iterator[str]:
    """Which sites move, which meta-groups appear and disappear, which trees change, and what stays."""
    yield from _moves(before, change.forest)
    for label in change.created:
        yield f"The meta-group {named(label)} appears."
    for label in change.deleted:
        yield f"The meta-group {named(label)} disappears: its last site is gone."
    for label, (old, new) in change.moved.items():
        yield f"{clean(old)} was the primary site of {named(label)} and moves away; now {clean(new)} is."
    if not change.alters_trees:
        yield "No meta-group appears or disappears, so no tree has other links."
        return
    yield _trees(before, change)
    yield from _entries(before, change.forest)
    if change.kept:
        yield f"Untouched: {counted(len(change.kept), 'other tree')} ({_few(map(named, change.kept))})."


def agreement(replaced: Replacement, change: Change) -> str:
    """What a running cluster does, by the protocol's own decision."""
    if not replaced.handed_over and not replaced.planted:
        serving = "".join(
            f" {clean(old)} goes on with its work for {named(label)} until its tree is replaced."
            for label, (old, _) in change.moved.items()
        )
        return f"A running cluster keeps {counted(len(replaced.kept), 'tree')} and replaces none.{serving}"
    return (
        f"A running cluster keeps {counted(len(replaced.kept), 'tree')}; {len(replaced.handed_over):,} "
        f"finish what is under way while {len(replaced.planted):,} begin, and no site stops."
    )


def _moves(before: Forest, after: Forest) -> Iterator[str]:
    for site in sorted({*before.label_of, *after.label_of}):
        old, new = before.label_of.get(site), after.label_of.get(site)
        if old == new:
            continue
        if old is None or new is None:
            verb, label = ("comes into", new) if old is None else ("is in no group any more and leaves", old)
            yield f"{clean(site)} {verb} {named(label or ())}."
        else:
            yield f"{clean(site)} moves from {named(old)} to {named(new)}."


def _trees(before: Forest, change: Change) -> str:
    """What happens to the trees concerned, and how many of their meta-groups keep their parent."""
    old, new = (_few(map(named, roots)) for roots in (change.stopped, change.begun))
    if not change.stopped:
        return f"A tree begins: {new}."
    if not change.begun:
        return f"{_trees_of(change.stopped, old)} ends."
    kept = sum(label in change.forest.nodes for root in change.stopped for label in before.tree(root))
    if len(change.stopped) == len(change.begun) == 1:
        became = f"{_trees_of(change.stopped, old)} is planted anew" + (f", as {new}" if old != new else "")
    elif len(change.begun) == 1:
        became = f"{_trees_of(change.stopped, old)} become one, {new}"
    else:
        became = f"{_trees_of(change.stopped, old)} become{'s' * (len(change.stopped) == 1)} those of {new}"
    if not kept:
        return f"{became}."
    moved = len(change.reparented)
    return f"{became}: of the {counted(kept, 'meta-group')} that stay, {moved or 'none'} get another parent."


def _trees_of(roots: Sequence[Label], names: str) -> str:
    return f"The tree{'s' * (len(roots) > 1)} of {names}"


def _entries(before: Forest, after: Forest) -> Iterator[str]:
    """Groups that are new, that lost their last member, or whose messages enter elsewhere."""
    for group in sorted({*before.primary_of, *after.primary_of}):
        old, new = before.entry(group), after.entry(group)
        name = clean(group)
        if new is None:
            yield f"Group {name} has no members any more."
        elif old is None:
            yield f"Group {name} has members now; its messages enter at {clean(new)}."
        elif before.primary_of[group] != after.primary_of[group]:
            here, there = named(after.primary_of[group]), named(before.primary_of[group])
            yield f"Messages to {name} enter at {clean(new)} in {here}, no longer in {there}."


def named(label: Label) -> str:
    """A label that is safe to print and not too long.

    >>> named(("A", "B"))
    '<AB>'
    """
    shown: list[Group] = [clean(group) for group in label]
    if len(shown) > MOST_NAMES:
        shown = [*shown[: MOST_NAMES - 1], f"+{len(shown) - MOST_NAMES + 1}"]
    return label_text(tuple(shown))


def listed(names: Iterable[str]) -> str:
    """Names that are safe to print, as a list of limited length."""
    return _few(map(clean, names))


def _few(names: Iterable[str]) -> str:
    every = list(names)
    if len(every) <= MOST_NAMES:
        return ", ".join(every)
    return ", ".join(every[: MOST_NAMES - 1]) + f" and {len(every) - MOST_NAMES + 1:,} more"


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
