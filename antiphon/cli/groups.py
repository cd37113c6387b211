"""`antiphon groups`: the meta-groups and trees of overlapping groups, and what a join or leave changes."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from antiphon.cli.console import data, print_json, say
from antiphon.cli.group_files import read_membership
from antiphon.cli.group_text import agreement, counted, listed, named, sentences
from antiphon.core.errors import OutputError
from antiphon.core.ids import Group, Site
from antiphon.protocols.metagroups.agreed import AgreedTrees
from antiphon.protocols.metagroups.changes import Change, change
from antiphon.protocols.metagroups.formation import Label, label_text
from antiphon.protocols.metagroups.shapes import Shape
from antiphon.protocols.metagroups.tree import Forest, build_forest
from antiphon.report.escape import clean
from antiphon.report.forest import Box, fit, forest_to_svg

MOST_ROWS: Final = 60
"""Rows of each table; --json prints all."""
FIT: Final = 22
"""Characters of a list in the drawing."""
LEGEND: Final = (
    "● primary site; along a line: groups whose messages flow there, in brackets if they only pass"
)
COLUMNS: Final = (
    *("group", "members", "primary", "enters at", "messages", "hops", "depth", "extra"),
    *("busiest site", "its load"),
)

Pair = tuple[Site, Group]


def groups(
    file: Annotated[Path, Parameter(help="TOML ([groups] A = [...]) or CSV (group,site)")],
    *,
    join: Annotated[
        list[Pair] | None, Parameter(help="let a site join a group: SITE GROUP; may be repeated", negative=())
    ] = None,
    leave: Annotated[
        list[Pair] | None,
        Parameter(help="let a site leave a group: SITE GROUP; may be repeated", negative=()),
    ] = None,
    shape: Annotated[Shape, Parameter(help="of the trees: ours, or as the paper prints them")] = "shallow",
    svg: Annotated[Path | None, Parameter(help="draw the forest to this file")] = None,
    json: Annotated[bool, Parameter(help="print one JSON object", negative=())] = False,
) -> int:
    """Show how overlapping groups are put into one order: meta-groups, their trees, and each group's costs.

    Sites that are in the same groups form a meta-group; a message to a group enters at its primary
    meta-group and flows down the tree. With `--join` and `--leave` it first says what they change and
    what not; everything else is shown as it is after them. docs/groups.md explains the terms.

    Example: antiphon groups examples/groups.toml --join s02 B --svg forest.svg
    """
    membership = read_membership(file)
    before = build_forest(membership, shape=shape)
    changed = change(before, join or [], leave or []) if join or leave else None
    forest = before if changed is None else changed.forest
    empty = sorted(set(membership) - set(forest.primary_of))
    if svg is not None:
        write_svg(svg, forest, () if changed is None else changed.created)
    replaced = None
    if changed is not None:
        replaced = AgreedTrees(before.membership(), shape).change(changed.forest.membership())
    if json:
        account = None if changed is None else change_as_json(changed)
        if account is not None and replaced is not None:
            account["agreed"] = replaced._asdict()
        print_json(as_json(forest) | {"empty": empty, "change": account})
        return 0
    if changed is not None and replaced is not None:
        for sentence in sentences(before, changed):
            data.print(sentence, markup=False)
        data.print(agreement(replaced, changed), markup=False)
        data.print()
    print_forest(forest)
    if empty:
        data.print(f"Without members: {listed(empty)}.", markup=False)
    return 0


def print_forest(forest: Forest) -> None:
    data.print(heading(forest), markup=False, style="bold")
    data.print()
    data.print("Trees of meta-groups (● primary site):", markup=False)
    print_table(list(tree_rows(forest)))
    data.print()
    data.print("A message to each group:", markup=False)
    print_table([COLUMNS, *(route_row(forest, group) for group in sorted(forest.primary_of))])
    busiest = busiest_site(forest)
    if busiest is not None:
        messages = sum(forest.route(group).messages for group in forest.primary_of)
        data.print()
        data.print(
            f"With one message to each group, {clean(busiest[0])} is busiest: it sends and receives "
            f"{busiest[1]:,} of {messages:,} messages.",
            markup=False,
        )


def heading(forest: Forest) -> str:
    return (
        f"{counted(len(forest.primary_of), 'group')} over {counted(len(forest.label_of), 'site')}: "
        f"{counted(len(forest.nodes), 'meta-group')} in {counted(len(forest.roots), 'tree')}"
    )


def print_table(rows: Sequence[Sequence[str]]) -> None:
    shown = rows[:MOST_ROWS]
    widths = [max(len(row[column]) for row in shown) for column in range(len(shown[0]))] if shown else []
    for row in shown:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        data.print(f"  {line.rstrip()}", markup=False)
    if len(rows) > len(shown):
        say(f"{len(rows) - len(shown):,} more rows are not shown; --json has them all.")


def tree_rows(forest: Forest) -> Iterator[tuple[str, str, str]]:
    """Each meta-group with lines that show its place, its sites, and its part in the groups' messages."""
    leads_in: dict[Label | None, str] = {None: ""}
    for label in (label for root in forest.roots for label in forest.tree(root)):
        node = forest.nodes[label]
        branch, going_on = "", ""
        if node.parent is not None:
            is_last = forest.nodes[node.parent].children[-1] == label
            branch, going_on = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
        above = leads_in[node.parent]
        leads_in[label] = above + going_on
        others = listed(site for site in node.sites if site != node.primary)
        sites = f"● {clean(node.primary)}" + (f", {others}" if others else "")
        yield above + branch + named(label), sites, "; ".join(duties(forest, label))


def duties(forest: Forest, label: Label) -> Iterator[str]:
    own = sorted(group for group in label if forest.primary_of[group] == label)
    if own:
        yield f"primary of {listed(own)}"
    passing = sorted(set(forest.flows(label)) - set(label))
    if passing:
        yield f"passes {listed(passing)} on"


def route_row(forest: Forest, group: Group) -> tuple[str, ...]:
    route = forest.route(group)
    figures = (route.messages, route.hops, route.depth, len(route.extra))
    return (
        clean(group),
        f"{len(forest.members(group)):,}",
        named(forest.primary_of[group]),
        clean(forest.entry(group) or ""),
        *(f"{figure:,}" for figure in figures),
        clean(route.busiest),
        f"{route.busiest_load:,}",
    )


def busiest_site(forest: Forest) -> tuple[Site, int] | None:
    """The site that sends and receives most if every group gets one message, and its load."""
    total: Counter[Site] = Counter()
    for group in forest.primary_of:
        total.update(forest.loads(group))
    return min(total.items(), key=lambda item: (-item[1], item[0]), default=None)


def as_json(forest: Forest) -> dict[str, Any]:
    busiest = busiest_site(forest)
    return {
        "groups": len(forest.primary_of),
        "sites": len(forest.label_of),
        "trees": len(forest.roots),
        "meta_groups": [
            node._asdict() | {"flows": forest.flows(label)} for label, node in sorted(forest.nodes.items())
        ],
        "routes": [
            forest.route(group)._asdict()
            | {"members": len(forest.members(group)), "primary": label, "entry": forest.entry(group)}
            for group, label in sorted(forest.primary_of.items())
        ],
        "busiest": None if busiest is None else {"site": busiest[0], "load": busiest[1]},
    }


def change_as_json(changed: Change) -> dict[str, Any]:
    moved = [{"label": label, "from": old, "to": new} for label, (old, new) in sorted(changed.moved.items())]
    rest = {name: value for name, value in changed._asdict().items() if name not in ("forest", "moved")}
    return {"alters_trees": changed.alters_trees, **rest, "moved": moved}


def write_svg(path: Path, forest: Forest, created: Collection[Label]) -> None:
    try:
        path.write_text(forest_to_svg(boxes(forest, created), heading(forest), LEGEND), encoding="utf-8")
    except OSError as error:
        raise OutputError(f"The drawing cannot be written to {path}: {error.strerror}.") from None


def boxes(forest: Forest, created: Collection[Label] = ()) -> list[Box]:
    """The forest as boxes of a drawing."""
    places: dict[Label, int] = {}
    found: list[Box] = []
    for label in (label for root in forest.roots for label in forest.tree(root)):
        node = forest.nodes[label]
        own = sorted(group for group in label if forest.primary_of[group] == label)
        flows = [group if group in label else f"({group})" for group in forest.flows(label)]
        notes = [*(["new"] if label in created else []), *([f"primary of {fit(own, FIT)}"] if own else [])]
        places[label] = len(found)
        found.append(
            Box(
                label_text((fit(label, FIT),)) if len("".join(label)) > FIT else named(label),
                node.sites,
                marked=node.primary,
                note="; ".join(notes),
                flow=fit(flows, FIT),
                details="; ".join(
                    [named(label), *duties(forest, label), f"comes from above: {listed(flows)}"]
                ),
                parent=None if node.parent is None else places[node.parent],
                is_fresh=label in created,
            )
        )
    return found
