"""Large membership PDUs: split, reassembled, bounded; and how large a view may get."""

from random import Random

import msgspec
import pytest

from antiphon.core.errors import UsageError
from antiphon.core.ids import site_names
from antiphon.core.inputs import JoinGroup, Received, Start
from antiphon.core.wire import MAXIMUM_NAME_BYTES, Codec, Packet, Pdu
from antiphon.protocols.metagroups import PDUS, MetaGroups, MetaGroupsConfiguration, attempt, parts
from antiphon.protocols.metagroups import view as view_module
from antiphon.protocols.metagroups.formation import labels_of_sites
from antiphon.protocols.metagroups.parts import MOST_KEPT, Reassembly, is_part, reassemble, split
from antiphon.protocols.metagroups.pdus import MOST_GROUPS, MOST_LETTERS, Install, Part, Prepare, SiteRecord
from antiphon.protocols.metagroups.view import NO_FOUNDER, first_decision
from antiphon.sim.groups import draw_membership
from tests.protocols.harness.metagroups_group import Cluster
from tests.protocols.harness.staging import pdus
from tests.protocols.metagroups.test_changes import TWO_TREES, expect_progress, send_all

SMALL_BYTES = 64


def install(sites: int, groups: int = 20, name: str = "") -> Install:
    """A view of this many sites, whose names begin alike."""
    membership = draw_membership(Random(1), [name + site for site in site_names(sites)], groups, 3.0)
    records = tuple(
        SiteRecord(site, (0, 0), 1, label) for site, label in sorted(labels_of_sites(membership).items())
    )
    return Install("rules", first_decision(NO_FOUNDER, records, "shallow"))


def as_parts(found: list[Pdu]) -> list[Part]:
    assert all(isinstance(part, Part) for part in found)
    return [part for part in found if isinstance(part, Part)]


def test_a_small_pdu_is_not_split() -> None:
    pdu = install(100)
    assert split(pdu) == [pdu]


def test_the_view_of_a_thousand_sites_with_long_names_travels_in_parts() -> None:
    """Each of them fits a PDU, and in any order they make the same view."""
    pdu, codec, gathered = (
        install(1000, 200, "site-of-a-cluster-with-long-names-" + "x" * 24),
        Codec(PDUS),
        Reassembly(),
    )
    found = as_parts(split(pdu))
    assert len(found) >= 3
    Random(1).shuffle(found)
    for part in found:
        packet = codec.decode(codec.encode(part))
        assert isinstance(packet, Packet)
        assert packet.pdu == part
        assert is_part(part)
        pieces = gathered.add("s", part)
    assert pieces is not None
    assert reassemble(pdu.code, found[0].name, pieces) == pdu
    assert gathered.kept == 0


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly everything has to be split."""
    monkeypatch.setattr(parts, "PART_BYTES", SMALL_BYTES)


def test_a_pdu_as_long_as_a_part_is_not_split(monkeypatch: pytest.MonkeyPatch) -> None:
    pdu = install(20)
    size = len(msgspec.msgpack.encode(pdu))
    monkeypatch.setattr(parts, "PART_BYTES", size)
    assert split(pdu) == [pdu]
    monkeypatch.setattr(parts, "PART_BYTES", size - 1)
    assert len(split(pdu)) == 2


@pytest.mark.usefixtures("small")
def test_parts_of_two_transmissions_make_one_whole() -> None:
    pdu, gathered = install(20), Reassembly()
    found = as_parts(split(pdu))
    assert found == split(pdu)
    assert all(gathered.add("s", part) is None for part in found[::2])
    assert all(gathered.add("s", part) is None for part in found[::2])
    taken = [gathered.add("s", part) for part in found[1::2]]
    assert taken[-1] == [part.data for part in found]


@pytest.mark.usefixtures("small")
def test_one_whole_of_each_sender_is_reassembled() -> None:
    gathered = Reassembly()
    first, second = as_parts(split(install(20))), as_parts(split(install(21)))
    assert all(gathered.add("s", part) is None for part in first[:-1])
    assert all(gathered.add("t", part) is None for part in first[:-1])
    assert all(gathered.add("s", part) is None for part in second[:-1])
    assert gathered.add("s", first[-1]) is None
    assert gathered.add("t", first[-1]) is not None
    assert gathered.kept == 1


def test_no_more_parts_are_kept_than_may_be() -> None:
    gathered = Reassembly()
    for number in range(3 * MOST_KEPT):
        part = Part(Install.code, number // 5, number % 5, 6, b"x")
        assert gathered.add(f"s{number // 5}", part) is None
        assert gathered.kept <= MOST_KEPT
    assert gathered.kept > MOST_KEPT - 6


def test_as_many_parts_are_kept_as_may_be() -> None:
    gathered = Reassembly()
    for number in range(MOST_KEPT):
        gathered.add(f"s{number}", Part(Install.code, number, 0, 2, b"x"))
    assert gathered.kept == MOST_KEPT


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
    (pdu,) = split(Install("rules\n", install(3).decision))
    data = parts._encoder.encode(pdu)
    cluster.give("a", Received("b", Part(Install.code, parts.name_of(data), 0, 1, data)))
    assert cluster.members["a"].ignored == 1


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("lost_in", [0, 2, 3])
def test_sites_agree_in_parts(monkeypatch: pytest.MonkeyPatch, lost_in: int) -> None:
    """A leave, a crash of the coordinator and its return, while some parts of whole views are lost."""
    monkeypatch.setattr(attempt, "CHANGES_FIRST", 0)
    cluster = Cluster(TWO_TREES)
    heard = 0

    def lost(_source: str, _target: str, pdu: Pdu) -> bool:
        nonlocal heard
        heard += isinstance(pdu, Part)
        return isinstance(pdu, Part) and lost_in > 0 and heard % (lost_in * 7) < 7

    cluster.lost = lost
    send_all(cluster)
    cluster.leave("c", "A")
    cluster.membership["A"] = ("a", "b", "d")
    cluster.pass_time(1000)
    assert "-A" in cluster.changes("c")
    cluster.crash("a")
    cluster.pass_time(1500)
    assert {cluster.figure(name, "sites") for name in "bcdxyz"} == {6}
    cluster.restart("a")
    expect_progress(cluster)
    assert heard > 50


# How large views can get


def test_the_groups_of_a_site_are_bounded() -> None:
    cluster = Cluster({f"group {number}": "a" for number in range(MOST_GROUPS)}, others="b")
    before = cluster.figure("a", "waiting"), len(cluster.effects["a"])
    with pytest.raises(UsageError, match="too many groups"):
        cluster.members["a"].handle(0, JoinGroup("one more"))
    assert (cluster.figure("a", "waiting"), len(cluster.effects["a"])) == before


@pytest.mark.parametrize(
    "names", [["x" * 256], [f"{number:0200}" for number in range(MOST_LETTERS // 200 + 1)]]
)
def test_names_of_groups_have_a_length(names: list[str]) -> None:
    with pytest.raises(UsageError, match="name is too long"):
        MetaGroups("a", {name: ["a"] for name in names}, MetaGroupsConfiguration(), Random(1))


def test_a_group_may_have_the_longest_name() -> None:
    MetaGroups("a", {"x" * MAXIMUM_NAME_BYTES: ["a"]}, MetaGroupsConfiguration(), Random(1))


def test_a_full_view_takes_no_site_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups can be left, nothing else; a request for more raises."""
    cluster = Cluster({"A": "abcd", "B": "cd"})
    monkeypatch.setattr(view_module, "LARGEST_VIEW", 10)
    with pytest.raises(UsageError, match="no room for more"):
        cluster.join("a", "B")
    stranger = MetaGroups("n", {"A": ["n"]}, MetaGroupsConfiguration(acknowledge_ns=0), Random(1))
    for heartbeat in pdus(stranger.handle(0, Start(1)), Pdu):
        cluster.give("a", Received("n", heartbeat))
    cluster.pass_time(100)
    assert cluster.figure("a", "version") == 1
    cluster.leave("d", "B")
    cluster.pass_time(200)
    assert "-B" in cluster.changes("d")
    cluster.membership["B"] = ("c",)
    send_all(cluster)  # sites that hear of the leave only now ask first
    cluster.pass_time(60)
    expect_progress(cluster)


@pytest.mark.parametrize(
    ("groups", "room", "fits"),
    [
        pytest.param(("A", "B"), 1, True, id="the last letter"),
        pytest.param(("A", "B"), 0, False, id="a letter too many"),
        pytest.param(("B",), -1, True, id="no more letters than before"),
    ],
)
def test_a_view_has_room_up_to_its_last_letter(
    groups: tuple[str, ...], room: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = Cluster({"A": "abcd", "B": "cd"}).members["a"]._member._trees.view
    assert view is not None
    monkeypatch.setattr(view_module, "LARGEST_VIEW", view._letters + room)
    assert view.has_room(SiteRecord("b", (0, 0), 2, groups)) == fits
