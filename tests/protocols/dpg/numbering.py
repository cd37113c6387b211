"""What tests of the tag sequencer service share: groups whose members number, and what they know."""

from antiphon.protocols.dpg.pdus import Tag
from tests.protocols.harness.tag_sequencer_group import Group, contradictions, out_of_turn

NAMES = ["a", "b", "c", "d", "e"]


def begun(names: list[str] = NAMES, **knobs: object) -> Group:
    """A group whose members know one another and a sequencer."""
    group = Group(names, **knobs)  # type: ignore[arg-type]
    group.run(100)
    group.send(names[0])
    group.run(100)
    assert len(group.sequencers()) == 1
    return group


def judge(group: Group) -> None:
    assert not group.conflicting()
    for colour in {member.colour for member in group.everyone()}:
        members = [member for member in group.everyone() if member.colour == colour]
        assert contradictions(group.arcs(members)) == []
    assert out_of_turn(group) == []


def all_tags(group: Group) -> set[Tag]:
    return {tag for tags in group.sent.values() for tag in tags}


def others(group: Group) -> list[str]:
    return [name for name in group.members if name not in group.sequencers()]
