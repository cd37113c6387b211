"""Large words of the council: cut, put together again, bounded; and how large a table may get."""

from random import Random

import pytest

from antiphon.core.errors import UsageError
from antiphon.core.ids import site_names
from antiphon.core.inputs import JoinGroup, Received, Start
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.metagroups import PDUS, MetaGroups, MetaGroupsConfiguration, parts, table
from antiphon.protocols.metagroups.formation import labels_of_sites
from antiphon.protocols.metagroups.parts import MOST_KEPT, Parts, cut, is_part, put_together
from antiphon.protocols.metagroups.pdus import MOST_GROUPS, MOST_LETTERS, Install, Part, Prepare, Seat
from antiphon.protocols.metagroups.table import NO_FOUNDER, first_decision
from antiphon.sim.groups import draw_membership
from tests.protocols.metagroups_group import Cluster
from tests.protocols.staging import pdus
from tests.protocols.test_metagroups_changes import TWO_TREES, expect_progress, send_all

SMALL_BYTES = 64


def install(sites: int, groups: int = 20, name: str = "") -> Install:
    """A table of so many sites, whose names begin alike."""
    membership = draw_membership(Random(1), [name + site for site in site_names(sites)], groups, 3.0)
    seats = tuple(Seat(site, (0, 0), 1, label) for site, label in sorted(labels_of_sites(membership).items()))
    return Install("rules", first_decision(NO_FOUNDER, seats, "shallow"))


def as_parts(found: list[Pdu]) -> list[Part]:
    assert all(isinstance(part, Part) for part in found)
    return [part for part in found if isinstance(part, Part)]


def test_what_is_small_is_not_cut() -> None:
    pdu = install(100)
    assert cut(pdu) == [pdu]


def test_the_table_of_a_thousand_sites_with_long_names_travels_in_parts() -> None:
    """Each of them fits a PDU, and whatever their order they make the same table."""
    pdu, codec, gathered = (
        install(1000, 200, "site-of-a-cluster-with-long-names-" + "x" * 24),
        Codec(PDUS),
        Parts(),
    )
    found = as_parts(cut(pdu))
    assert len(found) >= 3
    Random(1).shuffle(found)
    for part in found:
        packet = codec.decode(codec.encode(part))
        assert isinstance(packet, Packet)
        assert packet.pdu == part
        assert is_part(part)
        pieces = gathered.take("s", part)
    assert pieces is not None
    assert put_together(pdu.code, found[0].name, pieces) == pdu
    assert gathered.kept == 0


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly everything has to be cut."""
    monkeypatch.setattr(parts, "PART_BYTES", SMALL_BYTES)


@pytest.mark.usefixtures("small")
def test_parts_of_two_times_make_one_whole() -> None:
    pdu, gathered = install(20), Parts()
    found = as_parts(cut(pdu))
    assert found == cut(pdu)
    assert all(gathered.take("s", part) is None for part in found[::2])
    assert all(gathered.take("s", part) is None for part in found[::2])
    taken = [gathered.take("s", part) for part in found[1::2]]
    assert taken[-1] == [part.data for part in found]


@pytest.mark.usefixtures("small")
def test_one_whole_of_each_sender_is_in_the_making() -> None:
    gathered = Parts()
    first, second = as_parts(cut(install(20))), as_parts(cut(install(21)))
    assert all(gathered.take("s", part) is None for part in first[:-1])
    assert all(gathered.take("t", part) is None for part in first[:-1])
    assert all(gathered.take("s", part) is None for part in second[:-1])
    assert gathered.take("s", first[-1]) is None
    assert gathered.take("t", first[-1]) is not None
    assert gathered.kept == 1


def test_no_more_parts_are_kept_than_may_be() -> None:
    gathered = Parts()
    for number in range(3 * MOST_KEPT):
        part = Part(Install.code, number // 5, number % 5, 6, b"x")
        assert gathered.take(f"s{number // 5}", part) is None
        assert gathered.kept <= MOST_KEPT
    assert gathered.kept > MOST_KEPT - 6


@pytest.mark.parametrize(
    "part",
    [
        Part(Prepare.code, 1, 0, 2, b"x"),
        Part(Install.code, 1, 2, 2, b"x"),
        Part(Install.code, 1, 0, 1, b"a whole that is none"),
        Part(Install.code, parts.name_of(b"neither"), 0, 1, b"neither"),
        Part(Install.code, parts.name_of(b"\x92\xa0\x90"), 0, 1, b"\x92\xa0\x90"),
    ],
)
def test_parts_that_make_no_sense_are_ignored(part: Part) -> None:
    cluster = Cluster(TWO_TREES)
    cluster.give("a", Received("b", part))
    assert cluster.members["a"].ignored == 1


def test_a_whole_that_makes_no_sense_is_ignored() -> None:
    cluster = Cluster(TWO_TREES)
    (pdu,) = cut(Install("rules\n", install(3).decision))
    data = parts._encoder.encode(pdu)
    cluster.give("a", Received("b", Part(Install.code, parts.name_of(data), 0, 1, data)))
    assert cluster.members["a"].ignored == 1


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("lost_in", [0, 2, 3])
def test_sites_agree_in_parts(lost_in: int) -> None:
    """A leave, a crash of the coordinator and its return, while some parts of everything are lost."""
    cluster = Cluster(TWO_TREES)
    heard = 0

    def lost(_source: str, _target: str, pdu: Pdu) -> bool:
        nonlocal heard
        heard += isinstance(pdu, Part)
        return isinstance(pdu, Part) and lost_in > 0 and heard % (lost_in * 7) < 7

    cluster.lost = lost
    send_all(cluster)
    cluster.leave("d", "B")
    cluster.membership["B"] = ("c",)
    cluster.pass_time(1000)
    assert "-B" in cluster.changes("d")
    cluster.crash("a")
    cluster.pass_time(1500)
    assert {cluster.figure(name, "sites") for name in "bcdxyz"} == {6}
    cluster.restart("a")
    expect_progress(cluster)
    assert heard > 100


# How large tables can get


def test_a_site_can_be_in_so_many_groups_and_no_more() -> None:
    cluster = Cluster({f"group {number}": "a" for number in range(MOST_GROUPS)}, others="b")
    before = cluster.figure("a", "waiting"), len(cluster.effects["a"])
    with pytest.raises(UsageError, match="so many groups"):
        cluster.members["a"].handle(0, JoinGroup("one more"))
    assert (cluster.figure("a", "waiting"), len(cluster.effects["a"])) == before


@pytest.mark.parametrize(
    "names", [["x" * 256], [f"{number:0200}" for number in range(MOST_LETTERS // 200 + 1)]]
)
def test_names_of_groups_have_a_length(names: list[str]) -> None:
    with pytest.raises(UsageError, match="so long a name"):
        MetaGroups("a", {name: ["a"] for name in names}, MetaGroupsConfiguration(), Random(1))


def test_a_full_table_takes_nobody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups can be left, nothing else; whoever wants more is told."""
    cluster = Cluster({"A": "abcd", "B": "cd"})
    monkeypatch.setattr(table, "LARGEST_TABLE", 10)
    with pytest.raises(UsageError, match="no room for more"):
        cluster.join("a", "B")
    stranger = MetaGroups("n", {"A": ["n"]}, MetaGroupsConfiguration(acknowledge_ns=0), Random(1))
    for word in pdus(stranger.handle(0, Start(1)), Pdu):
        cluster.give("a", Received("n", word))
    cluster.pass_time(100)
    assert cluster.figure("a", "version") == 1
    cluster.leave("d", "B")
    cluster.pass_time(100)
    assert cluster.figure("a", "version") == 2
    cluster.membership["B"] = ("c",)
    expect_progress(cluster)
