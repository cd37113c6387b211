"""What tests of lying sites share."""

from msgspec import structs

from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.protocols.metagroups import MetaGroupsConfiguration
from antiphon.protocols.metagroups.ending import end_tree
from antiphon.protocols.metagroups.pdus import Decision, Ending, Holding, Report, Retiring, SiteRecord
from antiphon.protocols.metagroups.view import View, decide, plan_trees, retire
from tests.protocols.harness.metagroups_group import KNOBS, Cluster

BATCH = pack([b"x"])
RULES = KNOBS.rules
GROUPS = {"A": "abc", "B": "cde"}
SUSPECT_MS = KNOBS.suspect_ns / MILLISECOND_NS
RECORD = SiteRecord("a", (1, 1), 1, ("A",))
DECISION = Decision((1, 1, "a"), 1, (1, "a"), (RECORD,), (), (), (), ())


def cluster_of(knobs: MetaGroupsConfiguration = KNOBS) -> Cluster:
    cluster = Cluster(GROUPS, knobs)
    cluster.pass_time(200)
    return cluster


def view_at(cluster: Cluster, name: str) -> View:
    view = cluster.members[name]._member._trees.view
    assert view is not None
    return view


def all_get_on(cluster: Cluster, within_ms: float = 500) -> bool:
    before = {name: len(cluster.delivered(name)) for name in "abcde"}
    for name in "ab":
        cluster.admit(name, "A")
    for name in "de":
        cluster.admit(name, "B")
    cluster.pass_time(within_ms)
    gained = [len(cluster.delivered(name)) - before[name] for name in "abcde"]
    return gained == [2, 2, 4, 2, 2]


def held(**changes: object) -> Report:
    return Report(1, 1, (1, 1), None, (structs.replace(Holding((1, 1), (), 0, ()), **changes),))


LAST, BEYOND = NUMBER_LIMIT - 1, NUMBER_LIMIT


def following(view: View, *, without: str = "", ballot: tuple[int, str] = (1, "a")) -> Decision:
    """What a coordinator would make next if these were gone, with nothing under way."""
    records = [record for record in view.decision.records if record.site not in without]
    plan = plan_trees(view, records, (), KNOBS.shape)
    endings = [end_tree(tree, view.members_on(tree), {}) for tree in sorted(plan.ended)]
    origin, retiring = view.decision.origin, retire(view, plan, ())
    return decide(origin, view.version + 1, ballot, records, plan, retiring, endings)


def moved(view: View) -> Decision:
    """What it would make if b left its group: a tree hands over, and another site comes."""
    request = structs.replace(view.records["b"], serial=9, groups=())
    records = [request if record.site == "b" else record for record in view.decision.records]
    records.append(SiteRecord("z", (7, 0), 1, ("C",)))
    plan = plan_trees(view, records, (), KNOBS.shape)
    retiring = retire(view, plan, ())
    return decide(view.decision.origin, view.version + 1, (1, "a"), records, plan, retiring)


def forged(view: View) -> dict[str, Decision]:
    """Decisions with one thing each that is wrong."""
    fair, over = following(view, without="e"), moved(view)
    (tree,) = view.trees
    (label, _), *others = over.trees
    return {
        "another cluster": structs.replace(fair, origin=(0, 0, "x")),
        "a later version": structs.replace(fair, version=fair.version + 1),
        "too few stay": following(view, without="cde"),
        "others stay": structs.replace(
            fair, records=tuple(structs.replace(record, session=(9, 9)) for record in fair.records)
        ),
        "a tree without a name": structs.replace(over, trees=tuple(others)),
        "a name without a tree": structs.replace(over, trees=(*over.trees, (("Z",), (2, 9)))),
        "two trees with one name": structs.replace(
            over, trees=tuple((root, over.trees[0][1]) for root, _ in over.trees)
        ),
        "a new tree with an old name": structs.replace(over, trees=((label, (1, 7)), *others)),
        "another tree of the same name": structs.replace(over, trees=((label, tree), *others), retiring=()),
        "a tree that is forgotten": structs.replace(over, retiring=()),
        "an ending that is forgotten": structs.replace(fair, endings=()),
        "two endings of one tree": structs.replace(fair, endings=fair.endings * 2),
        "a tree that ends and hands over": structs.replace(over, endings=(Ending(tree, (), (), 0),)),
        "a tree that hands over twice": structs.replace(over, retiring=over.retiring * 2),
        "an ending of no tree": structs.replace(
            fair, endings=(*fair.endings, structs.replace(fair.endings[0], tree=(1, 99)))
        ),
        "other members": structs.replace(over, retiring=(Retiring(tree, ()),)),
    }
