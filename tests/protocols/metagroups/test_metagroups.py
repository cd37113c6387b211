"""Meta-groups between fakes: the paper's orderings, repair, safe delivery, misuse."""

from collections.abc import Callable
from random import Random

import pytest

from antiphon.core.effects import Admitted, Deliver, Rejected, Stable
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Admit, Start
from antiphon.core.packing import pack
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.metagroups import PDUS, MetaGroups, MetaGroupsConfiguration
from antiphon.protocols.metagroups.bodies import Bodies
from antiphon.protocols.metagroups.channels import Batch, Inlet
from antiphon.protocols.metagroups.pdus import (
    Body,
    Copy,
    Entry,
    Held,
    Mark,
    Request,
    Taken,
    Token,
    TokenRequest,
    Want,
)
from antiphon.protocols.metagroups.tree import build_forest
from tests.protocols.harness.metagroups_group import KNOBS, Cluster
from tests.protocols.harness.staging import pdus

AGREED = MetaGroupsConfiguration(delivery="agreed", acknowledge_ns=0)
DIRECT = MetaGroupsConfiguration(bodies="direct", acknowledge_ns=0)
FIGURE_2 = {"A": "abcdj", "B": "abefk", "C": "acegi", "D": "dhi"}
"""The paper's figure 2, a site for each meta-group: <ABC> a, <AB> b, <AC> c, <AD> d, <BC> e, <B> fk, <C> g,
<D> h, <CD> i, <A> j."""


def shuffle(cluster: Cluster, seed: int) -> None:
    """Let everything arrive, always some PDU out of those under way."""
    random = Random(seed)
    while cluster.travelling:
        cluster.travelling.rotate(random.randrange(len(cluster.travelling)))
        cluster.step()


# The four orderings of section 1, whatever overtakes what on the way


@pytest.mark.parametrize("seed", range(5))
def test_single_source_single_group(seed: int) -> None:
    cluster = Cluster({"A": "abcd"})
    for _ in range(4):
        cluster.admit("b", "A")
    shuffle(cluster, seed)
    cluster.pass_time(200)
    for name in "abcd":
        assert cluster.delivered(name) == ["b0A", "b1A", "b2A", "b3A"]


@pytest.mark.parametrize("seed", range(5))
def test_single_source_multiple_groups(seed: int) -> None:
    """One source's messages reach common members in the order in which they were sent, too."""
    cluster = Cluster(FIGURE_2)
    for group in "DCADBCA":
        cluster.admit("h", group)
    shuffle(cluster, seed)
    cluster.pass_time(500)
    assert cluster.delivered("a") == ["h1C", "h2A", "h4B", "h5C", "h6A"]
    assert cluster.delivered("i") == ["h0D", "h1C", "h3D", "h5C"]
    assert cluster.delivered("d") == ["h0D", "h2A", "h3D", "h6A"]
    cluster.judge()


@pytest.mark.parametrize("seed", range(5))
def test_multiple_sources_single_group(seed: int) -> None:
    cluster = Cluster({"A": "abcd"})
    for name in "dcbadcba":
        cluster.admit(name, "A")
    shuffle(cluster, seed)
    cluster.pass_time(200)
    assert len(cluster.delivered("a")) == 8
    assert all(cluster.delivered(name) == cluster.delivered("a") for name in "bcd")


@pytest.mark.parametrize("knobs", [KNOBS, AGREED, DIRECT], ids=["safe", "agreed", "direct"])
@pytest.mark.parametrize("seed", range(6))
def test_multiple_sources_multiple_groups(seed: int, knobs: MetaGroupsConfiguration) -> None:
    cluster = Cluster(FIGURE_2, knobs)
    for name, group in zip("hjgfkiedcbahjgfk", "ABCDABCDDCBAABCD", strict=True):
        cluster.admit(name, group)
    shuffle(cluster, seed)
    cluster.pass_time(500)
    assert sum(len(cluster.delivered(name)) for name in cluster.names) == 4 * (5 + 5 + 5 + 3)
    cluster.judge()


# The way of a message


def test_a_message_takes_the_way_of_figure_4() -> None:
    """To reach <CD>, a message to C passes <AD>, and each transmission is one that the forest counts."""
    cluster = Cluster(FIGURE_2, AGREED)
    way: list[tuple[str, str]] = []

    def note(source: str, target: str, pdu: Pdu) -> bool:
        if isinstance(pdu, Request | Entry):
            way.append((source, target))
        return False

    cluster.lost = note
    cluster.admit("h", "C")
    cluster.settle()
    route = build_forest(cluster.membership).route("C")
    assert len(way) == route.messages
    assert ("h", "a") in way
    assert ("a", "d") in way
    assert ("d", "i") in way
    assert all("C" in cluster.delivered(name)[0] for name in "acegi")


def test_groups_are_open() -> None:
    """A site in no group can send to one, and learns the destinations."""
    cluster = Cluster({"A": "ab"}, others="z")
    (admitted,) = [effect for effect in cluster.admit("z", "A") if isinstance(effect, Admitted)]
    assert admitted.destinations == frozenset("ab")
    cluster.settle()
    assert cluster.delivered("a") == cluster.delivered("b") == ["z0A"]
    assert cluster.delivered("z") == []
    assert any(isinstance(effect, Stable) for effect in cluster.effects["z"])


def test_batches_are_ordered_and_delivered_as_one() -> None:
    cluster = Cluster({"A": "abc"})
    cluster.admit("c", "A", b"1", b"2", b"3")
    cluster.admit("b", "A", b"4", b"5")
    cluster.settle()
    assert cluster.delivered("a") == ["c0A", "c1A", "c2A", "b0A", "b1A"]


def test_groups_without_a_common_member_wait_for_nothing() -> None:
    """A sender's message to another primary site waits only if a site gets both."""
    cluster = Cluster({"A": "ab", "B": "cd", "C": "bcz"})
    cluster.lost = lambda _source, _target, pdu: isinstance(pdu, Taken)
    effects = cluster.admit("z", "A") + cluster.admit("z", "B")
    assert {pdu.group for pdu in pdus(effects, Request)} == {"A", "B"}
    assert not pdus(cluster.admit("z", "C"), Request)
    cluster.lost = lambda _source, _target, _pdu: False
    cluster.pass_time(100)
    assert cluster.delivered("b") == ["z0A", "z2C"]
    assert cluster.delivered("c") == ["z1B", "z2C"]


def ask_and_answer(knobs: MetaGroupsConfiguration) -> list[str]:
    """z sends to A and then to B; c, who is in B, answers to A while z's request to A is late."""
    cluster = Cluster({"A": "ab", "B": "cd"}, knobs, others="z")
    cluster.lost = lambda source, target, pdu: (source, target) == ("z", "a") and isinstance(pdu, Request)
    cluster.admit("z", "A")
    cluster.admit("z", "B")
    cluster.settle()
    if cluster.delivered("c"):
        cluster.admit("c", "A")
        cluster.settle()
    cluster.lost = lambda _source, _target, _pdu: False
    cluster.pass_time(100)
    if len(cluster.delivered("a")) == 1:
        cluster.admit("c", "A")
        cluster.pass_time(100)
    return cluster.delivered("b")


def test_causal_order_across_groups_is_an_option() -> None:
    assert ask_and_answer(KNOBS) == ["c0A", "z0A"]
    assert ask_and_answer(MetaGroupsConfiguration(causal=True, acknowledge_ns=0)) == ["z0A", "c0A"]


def test_an_answer_to_another_group_does_not_overtake_its_question() -> None:
    """What the one who answers has delivered, all hold: so the answer stands behind it in any stream."""
    cluster = Cluster({"A": "abc", "B": "bcd"})
    cluster.lost = lambda _source, target, pdu: target == "c" and isinstance(pdu, Mark)
    cluster.admit("a", "A")
    cluster.settle()
    assert cluster.delivered("a") == ["a0A"]
    assert cluster.delivered("c") == []
    cluster.admit("a", "B")
    cluster.settle()
    cluster.lost = lambda _source, _target, _pdu: False
    cluster.pass_time(100)
    assert cluster.delivered("c") == ["a0A", "a1B"]


# Safe delivery


def test_safe_delivery_waits_until_all_hold_a_message() -> None:
    cluster = Cluster({"A": "abcd"})
    cluster.lost = lambda _source, target, pdu: target == "d" and isinstance(pdu, Entry)
    cluster.admit("b", "A")
    cluster.settle()
    assert all(cluster.delivered(name) == [] for name in "abcd")
    cluster.lost = lambda _source, _target, _pdu: False
    cluster.pass_time(100)
    assert all(cluster.delivered(name) == ["b0A"] for name in "abcd")
    cluster.judge()


def test_agreed_delivery_does_not_wait() -> None:
    cluster = Cluster({"A": "abcd"}, AGREED)
    cluster.lost = lambda _source, target, pdu: target == "d" and isinstance(pdu, Entry)
    cluster.admit("b", "A")
    cluster.settle()
    assert all(cluster.delivered(name) == ["b0A"] for name in "abc")


@pytest.mark.parametrize("kind", [Request, Taken, Entry, Mark, Held, TokenRequest, Token, Body, Want, Copy])
@pytest.mark.parametrize("knobs", [KNOBS, AGREED, DIRECT], ids=["safe", "agreed", "direct"])
def test_whatever_is_lost_is_made_up_for(kind: type[Pdu], knobs: MetaGroupsConfiguration) -> None:
    """The first three of each kind to each site are lost; in the end all is delivered and nothing kept."""
    cluster = Cluster(FIGURE_2, knobs)
    left = dict.fromkeys(cluster.names, 3)

    def lost(_source: str, target: str, pdu: Pdu) -> bool:
        if isinstance(pdu, kind) and left[target]:
            left[target] -= 1
            return True
        return False

    cluster.lost = lost
    for group in "ABCD":
        cluster.admit("h", group)
        cluster.admit("c", group)
    cluster.pass_time(1500)
    assert sum(len(cluster.delivered(name)) for name in cluster.names) == 2 * (5 + 5 + 5 + 3)
    assert not any(cluster.figure(name, what) for name in cluster.names for what in ("kept", "waiting"))
    cluster.judge()


def test_an_idle_cluster_says_little() -> None:
    """When everything is settled, only words to the coordinator and from it are left."""
    cluster = Cluster(FIGURE_2)
    cluster.admit("h", "C")
    cluster.pass_time(200)
    before = cluster.steps
    cluster.pass_time(500)
    assert cluster.steps - before == 10 * 2 * (len(cluster.names) - 1)


# Bodies that go directly


def test_direct_bodies_pass_no_primary_site_that_they_are_not_for() -> None:
    """The sender multicasts the body once; along the tree go tokens only, also through <AD>."""
    cluster = Cluster(FIGURE_2, DIRECT)
    with_body: list[tuple[str, str]] = []
    tokens: list[tuple[str, str]] = []

    def note(source: str, target: str, pdu: Pdu) -> bool:
        if isinstance(pdu, Request | Entry | Body):
            with_body.append((source, target))
        if isinstance(pdu, TokenRequest | Token):
            tokens.append((source, target))
        return False

    cluster.lost = note
    cluster.admit("h", "C")
    cluster.settle()
    assert sorted(with_body) == [("h", name) for name in "acegi"]
    assert ("d", "i") in tokens
    assert len(tokens) == build_forest(cluster.membership).route("C").messages
    assert all(cluster.delivered(name) == ["h0C"] for name in "acegi")


def test_a_body_whose_sender_is_gone_is_fetched_from_the_primary_site() -> None:
    cluster = Cluster({"A": "abcd"}, DIRECT, others="efx")
    cluster.lost = lambda _source, target, pdu: target in "cd" and isinstance(pdu, Body)
    cluster.admit("x", "A")
    cluster.settle()
    cluster.crash("x")
    cluster.pass_time(100)
    assert all(cluster.delivered(name) == ["x0A"] for name in "abcd")
    cluster.judge()


def test_a_token_without_its_body_gets_no_place() -> None:
    """The primary site waits for the body, and asks its sender for it; other senders go on."""
    cluster = Cluster({"A": "abcd"}, DIRECT)
    cluster.lost = lambda source, target, pdu: (source, target) == ("d", "a") and isinstance(pdu, Body | Copy)
    cluster.admit("d", "A")
    cluster.admit("c", "A")
    cluster.pass_time(100)
    assert cluster.delivered("b") == ["c0A"]
    cluster.lost = lambda _source, _target, _pdu: False
    cluster.pass_time(100)
    assert cluster.delivered("b") == ["c0A", "d0A"]
    cluster.judge()


def test_bodies_without_tokens_are_bounded() -> None:
    bodies = Bodies(3)
    for number in range(10):
        bodies.add(Batch("a", 0, number, 1, "A", pack([b"x"])))
    assert len(bodies) == 3
    assert bodies.find("a", 6) is None
    token = Batch("a", 0, 9, 1, "A", None)
    assert bodies.take(token._replace(group="B")) is None
    assert bodies.take(token) == token._replace(bodies=pack([b"x"]))


def test_a_sender_alone_at_the_end_of_a_channel_gets_no_bodies() -> None:
    """All enters at b, the primary site of <ABC>, whose channels lead to one site each."""
    cluster = Cluster({"A": "ab", "B": "bc", "C": "bd"})
    kinds: list[tuple[str, str]] = []

    def note(source: str, target: str, pdu: Pdu) -> bool:
        if isinstance(pdu, Entry | Token):
            kinds.append((type(pdu).__name__, target))
        return False

    cluster.lost = note
    cluster.admit("a", "A", b"one", b"two")
    cluster.admit("c", "A")
    cluster.settle()
    assert kinds == [("Token", "a"), ("Entry", "a")]
    assert cluster.delivered("a") == cluster.delivered("b") == ["a0A", "a1A", "c0A"]
    assert next(effect for effect in cluster.effects["a"] if isinstance(effect, Deliver)).bodies[1] == b"two"
    cluster.judge()


def test_a_lost_token_of_its_own_batch_comes_to_a_sender_again() -> None:
    cluster = Cluster({"A": "ab"})
    lost: list[Pdu] = []

    def first_is_lost(_source: str, _target: str, pdu: Pdu) -> bool:
        if isinstance(pdu, Token) and not lost:
            lost.append(pdu)
            return True
        return False

    cluster.lost = first_is_lost
    cluster.admit("b", "A")
    cluster.admit("b", "A")
    cluster.pass_time(200)
    assert lost
    assert cluster.delivered("a") == cluster.delivered("b") == ["b0A", "b1A"]
    cluster.judge()


# Bounds and misuse


def test_requests_on_their_way_are_bounded() -> None:
    """A sender has four batches under way, and two that no primary site has accepted."""
    cluster = Cluster({"A": "abc"}, MetaGroupsConfiguration(admission=4, requests=2, acknowledge_ns=0))
    cluster.lost = lambda _source, target, _pdu: target == "a"
    for _ in range(5):
        cluster.admit("b", "A")
    cluster.settle()
    assert {pdu.seq for pdu in pdus(cluster.effects["b"], Request)} == {1, 2}
    assert cluster.refused("b") == 1
    cluster.lost = lambda _source, target, pdu: target == "c" and isinstance(pdu, Entry)
    cluster.pass_time(30)
    assert {pdu.seq for pdu in pdus(cluster.effects["b"], Request)} == {1, 2, 3, 4}, "accepted, not stable"
    assert cluster.delivered("b") == []
    cluster.lost = lambda _source, _target, _pdu: False
    cluster.pass_time(200)
    assert cluster.delivered("c") == ["b0A", "b1A", "b2A", "b3A"]


def test_admission_and_windows_are_bounded() -> None:
    knobs = MetaGroupsConfiguration(admission=4, window=2, acknowledge_ns=0)
    cluster = Cluster({"A": "abc"}, knobs)
    cluster.lost = lambda _source, target, _pdu: target == "c"
    for _ in range(8):
        cluster.admit("b", "A")
    cluster.settle()
    assert cluster.refused("b") == 4
    entries = {pdu.seq for pdu in pdus(cluster.effects["a"], Entry)}
    assert entries == {1, 2}
    assert cluster.figure("a", "kept") <= 4 + 2
    cluster.lost = lambda _source, _target, _pdu: False
    cluster.pass_time(200)
    assert cluster.delivered("c") == ["b0A", "b1A", "b2A", "b3A"]


def test_what_comes_from_far_ahead_is_not_kept() -> None:
    inlet = Inlet(0, "a", reach=8)
    assert inlet.on_entry(Entry((1, 0), 0, 9, 0, 0, "b", 0, 0, "A", pack([b"x"]))) == []
    assert inlet.missing() == tuple(range(1, 9))
    for seq in range(8, 0, -1):
        found = inlet.on_entry(Entry((1, 0), 0, seq, 0, 0, "b", 0, seq, "A", pack([b"x"])))
    assert [batch.number for batch in found] == list(range(1, 9))
    assert inlet.missing() == (9,)


def test_a_group_without_members_is_refused() -> None:
    cluster = Cluster({"A": "ab"})
    (effect,) = cluster.admit("a", "Z")
    assert effect == Rejected("The group Z has no members now.")


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (Admit([b"x"]), "A message goes to a group."),
        (Admit([], group="A"), "There is nothing to multicast: no body was handed in."),
        (Admit([b"x"], frozenset("a"), "A"), "Messages go to a whole group"),
        (Admit([bytes(400_000)], group="A"), "A batch of 400008 bytes does not fit a PDU."),
        (Start(), "This site has started already."),
    ],
)
def test_misuse_raises_and_changes_nothing(event: Admit | Start, sentence: str) -> None:
    cluster = Cluster({"A": "ab"})
    with pytest.raises(UsageError, match=sentence):
        cluster.members["a"].handle(0, event)
    cluster.admit("a", "A")
    cluster.settle()
    assert cluster.delivered("b") == ["a0A"]


def test_nothing_is_taken_before_the_start() -> None:
    site = MetaGroups("a", {"A": "ab"}, KNOBS, Random(1))
    with pytest.raises(UsageError, match="only after its start"):
        site.handle(0, Admit([b"x"], group="A"))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: MetaGroupsConfiguration(window=0),
        lambda: MetaGroupsConfiguration(admission=0),
        lambda: MetaGroupsConfiguration(repair_ns=0),
        lambda: MetaGroupsConfiguration(acknowledge_ns=-1),
        lambda: MetaGroupsConfiguration(suspect_ns=100, heartbeat_ns=50),
        lambda: MetaGroupsConfiguration(delivery="soon"),  # type: ignore[arg-type]
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        wrong()


def test_the_smallest_options_are_taken() -> None:
    MetaGroupsConfiguration(
        admission=1, window=1, acknowledge_ns=0, repair_ns=1, heartbeat_ns=1, suspect_ns=3, gather_ns=1,
        found_ns=1,
    )  # fmt: skip


# What peers may send


def heard_pdus(knobs: MetaGroupsConfiguration) -> list[tuple[str, str, Pdu]]:
    """Everything that travels while sites multicast, join, leave and crash."""
    cluster = Cluster({"A": "abcd", "B": "cde"}, knobs)
    found: list[tuple[str, str, Pdu]] = []
    deaf: set[str] = set()

    def note(source: str, target: str, pdu: Pdu) -> bool:
        found.append((source, target, pdu))
        return target in deaf and isinstance(pdu, Entry | Token)

    cluster.lost = note
    for name in "abcde":
        cluster.admit(name, "A")
        cluster.admit(name, "B")
    cluster.pass_time(100)
    cluster.join("a", "B")
    cluster.leave("e", "B")
    cluster.pass_time(100)
    deaf.add("d")
    cluster.admit("b", "A")
    cluster.settle()
    cluster.crash("c")
    cluster.pass_time(1000)
    return found


def test_every_pdu_survives_the_wire() -> None:
    codec = Codec(PDUS)
    for _, _, pdu in heard_pdus(KNOBS) + heard_pdus(DIRECT):
        packet = codec.decode(codec.encode(pdu))
        assert isinstance(packet, Packet)
        assert packet.pdu == pdu


@pytest.mark.parametrize("knobs", [KNOBS, DIRECT], ids=["tree", "direct"])
def test_garbage_of_the_right_kind_raises_nothing(knobs: MetaGroupsConfiguration) -> None:
    """PDUs with other numbers, names and lists in them, at the wrong time and from the wrong site."""
    random = Random(7)
    heard = heard_pdus(knobs)
    cluster = Cluster({"A": "abcd", "B": "cde"}, knobs)
    codec = Codec(PDUS)
    for _ in range(3000):
        _, _, pdu = random.choice(heard)
        fields = {name: _spoilt(random, getattr(pdu, name), heard) for name in pdu.__struct_fields__}
        try:
            found = codec.decode(codec.encode(type(pdu)(**fields)))
        except (TypeError, AttributeError, UsageError, OverflowError, NotImplementedError):
            continue
        if isinstance(found, Packet):
            source, target = random.sample(["a", "b", "c", "d", "e", "x"], 2)
            if target in cluster.members:
                cluster.travelling.append((source, target, found.pdu))
        for _ in range(min(3, len(cluster.travelling))):
            if cluster.travelling[0][1] in cluster.members:
                cluster.step()
            else:
                cluster.travelling.popleft()


def _spoilt(random: Random, value: object, heard: list[tuple[str, str, Pdu]]) -> object:
    if random.random() < 0.6:
        return value
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice([0, -1, 1, value + 1, value * 2, 1 << 62, 1 << 63, 10**6])
    if isinstance(value, str):
        return random.choice(["", "a", "e", "x", "A", "Z"])
    if isinstance(value, tuple):
        return random.choice([(), value[:1], value * 2, tuple(reversed(value))])
    other = random.choice(heard)[2]
    return getattr(other, random.choice(other.__struct_fields__))


def test_what_is_not_a_pdu_of_ours_is_counted() -> None:
    cluster = Cluster({"A": "ab"})
    bodies = pack([b"x"])
    wrong: list[Pdu] = [
        Entry((1, 0), 0, 1, 1, 0, "b", 0, 0, "A", bodies),
        Held((1, 0), 0, 2, 3, ()),
        Mark((1, 0), 0, 0, 1, 0),
        Request((1, 0), 0, (0, 0), 1, 0, "B", bodies),
        Taken((1, 0), 7, (0, 0), 1, 1),
    ]
    for pdu in wrong:
        cluster.travelling.append(("b", "a", pdu))
        cluster.step()
    assert cluster.members["a"].ignored == len(wrong)
    assert cluster.delivered("a") == []
