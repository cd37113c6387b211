"""Nothing that a peer sends makes a member raise, and none of it is applied twice or out of order."""

import dataclasses
from random import Random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.inputs import Received, Start, TimerFired
from antiphon.core.time import MILLISECOND_NS, SECOND_NS
from antiphon.protocols.quorum import Quorum, QuorumConfiguration
from antiphon.protocols.quorum import pdus as pdu
from antiphon.protocols.quorum import ports as qp
from antiphon.protocols.quorum.pdus import Config, Entry

GROUP = 77
SMALL = st.integers(0, 6)
NAMES = st.sampled_from(("a", "b", "c", "d"))
CONFIGS = st.builds(
    Config,
    voters=st.dictionaries(NAMES, st.integers(1, 2), min_size=1),
    learners=st.dictionaries(NAMES, st.integers(1, 2)),
)
BODIES = st.one_of(
    st.binary(max_size=8), CONFIGS.map(lambda config: bytes(msgspec.msgpack.encode(config))), st.just(b"\x90")
)
ENTRIES = st.builds(
    Entry, term=SMALL, kind=st.integers(0, 5), sender=NAMES, life=SMALL, number=SMALL, body=BODIES
)
ONLY: dict[str, Any] = {"group": st.just(GROUP)}
OWN: dict[str, Any] = {**ONLY, "identity": st.integers(1, 2)}
HEAD: dict[str, Any] = {**OWN, "term": SMALL}
FLAG = st.booleans()
PDUS = st.one_of(
    st.builds(
        pdu.Greet, identity=SMALL, group=st.sampled_from((0, GROUP)), answers=SMALL, stores=FLAG,
        expected=SMALL,
    ),
    st.builds(pdu.Found, group=st.sampled_from((GROUP, 78)), base=CONFIGS, to=SMALL, is_led=FLAG),
    st.builds(pdu.Agree, members=st.dictionaries(NAMES, SMALL)),
    st.builds(pdu.Ask, **HEAD, last_index=SMALL, last_term=SMALL, trial=FLAG, handed_over=FLAG),
    st.builds(pdu.Vote, **HEAD, granted=FLAG, trial=FLAG),
    st.builds(
        pdu.Append, **HEAD, previous=SMALL, previous_term=SMALL, commit=SMALL, durable=SMALL,
        entries=st.lists(ENTRIES, max_size=4).map(tuple),
    ),
    st.builds(pdu.Acknowledge, **HEAD, match=SMALL, lacking=FLAG),
    st.builds(pdu.Forward, **OWN, life=SMALL, number=SMALL, body=BODIES),
    st.builds(pdu.Expect, **ONLY, life=SMALL, number=SMALL),
    st.builds(pdu.Offer, **HEAD, index=SMALL, index_term=SMALL, size=st.integers(0, 1 << 50), checksum=SMALL),
    st.builds(pdu.Fetch, **OWN, index=SMALL, pieces=st.just((0, 1, 9))),
    st.builds(pdu.Piece, **ONLY, index=SMALL, number=SMALL, body=BODIES),
    st.builds(pdu.Change, **ONLY, name=NAMES, remove=FLAG),
    st.builds(pdu.Handover, **ONLY, term=SMALL, index=SMALL),
    st.builds(pdu.Removed, **OWN, index=SMALL),
    st.builds(pdu.Bye, **ONLY, life=SMALL),
)  # fmt: skip
TIMERS = st.sampled_from(("election", "election", "heartbeat", "forward", "greet", "transfer"))
INPUTS = st.one_of(
    st.tuples(st.sampled_from(("b", "c", "d", "a")), PDUS).map(lambda each: Received(*each)),
    st.tuples(st.sampled_from(("b", "c")), PDUS).map(lambda each: Received(*each)),
    st.builds(TimerFired, name=TIMERS),
    st.builds(qp.Call, ticket=st.integers(1, 100), body=st.just(b"\x91\x01")),
    st.builds(qp.Wish, name=NAMES, remove=FLAG),
    st.builds(qp.ClockTick, time_ns=st.integers(0, 9)),
    st.just(qp.Abandon()),
    st.just("snapshot"),
    st.just("stored"),
)


@settings(max_examples=150)
@given(st.lists(INPUTS, max_size=60), st.booleans(), st.integers(0, 3))
def test_no_peer_makes_a_member_raise(inputs: list[Any], stores: bool, seed: int) -> None:
    knobs = dataclasses.replace(QuorumConfiguration(), stores=stores, kept_bytes=50, piece_bytes=10)
    base = Config({"a": 1, "b": 1, "c": 1})
    recovered = qp.Recovered(qp.Durable(1, GROUP, base, 0, ""))
    member = Quorum("a", ("a", "b", "c"), knobs, Random(seed), recovered)
    now, applied, position = SECOND_NS, 0, 0
    member.handle(now, Start(3))
    for each in inputs:
        now += 30 * MILLISECOND_NS
        if each == "stored":
            each = qp.Stored(position)
        elif each == "snapshot":
            if member.commit <= member.snapshot_index:
                continue
            each = qp.Snapshotted(b"state")
        for effect in member.handle(now, each):
            if isinstance(effect, qp.Apply):
                assert effect.index >= applied
                applied = effect.index
            elif isinstance(effect, qp.Store | qp.Install):
                position = effect.position
