"""The orders and their options: one declaration, wherever they are given."""

import asyncio
import re
from math import inf, nan
from pathlib import Path
from random import Random
from typing import Any

import pytest

import antiphon
from antiphon.core.errors import UsageError
from antiphon.live.limits import Limits
from antiphon.live.orders import (
    ORDERS,
    Causal,
    Fifo,
    Sequencer,
    Settings,
    Total,
    TotalAcross,
    make_order,
    options_table,
)
from antiphon.protocols.dpg.services.bounded_delay import BoundedDelayService
from antiphon.protocols.stability.tuning import Tuning
from tests.live.members import a_group_name, read, within

DOCS = Path(__file__).parent.parent.parent / "docs" / "live.md"


def test_the_docs_have_the_table_of_all_options() -> None:
    assert options_table() in DOCS.read_text(), (
        "python -c 'from antiphon.live.orders import *; print(options_table())'"
    )


def test_a_name_with_options_and_an_order_are_the_same() -> None:
    assert make_order("total", {"service": "lan", "sequencer": None, "bypass": False}) == Total(service="lan")
    assert make_order(Fifo(repair="any"), {}) == Fifo(repair="any")
    assert make_order("sequencer", {"sequencer": "a"}) == Sequencer(sequencer="a")


@pytest.mark.parametrize(
    ("order", "options", "sentence"),
    [
        ("totl", {}, "There is no order 'totl'. Hint: Did you mean 'total'?"),
        ("total", {"servce": "lan"}, "There is no option 'servce'. Hint: Did you mean 'service'?"),
        (
            "fifo",
            {"service": "lan"},
            "The order 'fifo' has no option service=.",
        ),
        ("causal", {"repair": "any"}, "The order 'causal' has no option repair=."),
        (Total(), {"service": "lan"}, "service= goes into the order: Total(service=...)."),
        ("sequencer", {}, "The order 'sequencer' needs the name of the member that orders."),
        ("fifo", {"piggyback": True, "stability": "train"}, "The protocol 'train' has no rows"),
        ("fifo", {"suspect_after_ns": 1}, "suspect_after_ns=1 is too small."),
        ("fifo", {"stability": "gossip", "step_ns": 1}, "step_ns=1 is too small."),
        ("fifo", {"stability": "gossip", "subset": 0}, "subset=0 is too small."),
        ("fifo", {"stability": "s-coordp", "subgroup": 1}, "subgroup=1 is too small."),
        (
            "fifo",
            {"stability": "gossip", "controllers": 2},
            "The stability protocol 'gossip' has no controllers. Hint: It has: step_ns, subset.",
        ),
        ("fifo", {"subset": 2}, "The stability protocol 'coordp' has no subset. Hint: Leave it out."),
        (
            "fifo",
            {"piggyback": True, "scatter_ns": 1},
            "The stability protocol 'fulldist' has no scatter_ns.",
        ),
        ("sequencer", {"subset": 2, "sequencer": "a"}, "The order 'sequencer' has no option subset=."),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(
    order: str, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(UsageError) as raised:
        make_order(order, options)
    assert str(raised.value).startswith(sentence)


def test_the_fingerprint_has_what_all_must_share_with_the_defaults_filled_in() -> None:
    assert Total().fingerprint() == {"order": "total", "service": "sequencer", "deliver": "ordered"}
    assert Total(deliver="stable").promises() == (*Total().promises(), "safe")
    assert Total(quorum=3).fingerprint()["quorum"] == "3"
    assert Fifo(suspect_after_ns=10**9).fingerprint() == Fifo(stability="coordp").fingerprint()
    assert Fifo(piggyback=True).fingerprint()["stability"] == "fulldist"
    assert Fifo(stability="gossip", subset=1).fingerprint() == Fifo(stability="gossip").fingerprint()
    assert Fifo(stability="gossip", subset=2).fingerprint()["subset"] == "2"
    assert Fifo(stability="s-gossip", subgroup=9, controllers=2).fingerprint()["subgroup"] == "9"
    # Two members that differ first see that their protocols differ, then their knobs.
    names = list(Fifo().fingerprint())
    assert names.index("stability") < names.index("step_ns")
    agreed = {"order": "causal", "confirm": "continuous", "delivery": "full", "splits": "True"}
    assert Causal(confirm_ns=5, levels=True).fingerprint() == agreed
    assert TotalAcross(bypass=True).fingerprint()["bypass"] == "True"


def test_every_option_reaches_the_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Fifo(suspect_after_ns=123_000_000).configuration().suspect_after_ns == 123_000_000
    tuned = Fifo(stability="s-gossip", step_ns=20_000_000, subset=2, subgroup=9, controllers=2)
    assert tuned.configuration().tuning == Tuning(step_ns=20_000_000, subset=2, subgroup=9, controllers=2)
    assert Fifo(stability="fulldist", scatter_ns=5).configuration().tuning == Tuning(scatter_ns=5)
    assert TotalAcross(suspect_after_ns=123_000_000).configuration().suspect_ns == 123_000_000
    settings = Settings(site="a", receive_buffer_bytes=1 << 20, random=Random(1))
    for detector in ("evidence", "delays"):
        with monkeypatch.context() as patched:
            chosen: list[str] = []
            patched.setattr(
                "antiphon.live.orders.BoundedDelayService",
                lambda *, detector, chosen=chosen: chosen.append(detector) or BoundedDelayService(),
            )
            Total(service="bounded-delay", contiguity=detector).build(settings)
            assert chosen == [detector]
    assert {kind.name for kind in ORDERS.values()} == {"fifo", "causal", "sequencer", "total", "total-across"}


def test_groups_are_joined_with_orders_as_objects() -> None:
    async def body() -> None:
        group = a_group_name()
        async with (
            antiphon.join(group, name="a", order=antiphon.Causal(confirm_ns=4_000_000)) as a,
            antiphon.join(group, name="b", order="causal", suspect_after_ns=400_000_000) as b,
        ):
            await asyncio.gather(a.wait_for_members(2), b.wait_for_members(2))
            await a.send(b"x")
            assert await read(b, 1) == [("a", 0, b"x")]

    within(body())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"queue_bytes": "much"}, "queue_bytes='much' is no number."),
        ({"queue_bytes": None}, "queue_bytes=None is no number."),
        ({"join_s": True}, "join_s=True is no number."),
        ({"queue_bytes": 0}, "A queue holds at least one byte."),
        ({"outgoing_bytes": nan}, "A queue holds at least one byte."),
        ({"patience_s": -1}, "A time to wait cannot be negative."),
        ({"linger_s": nan}, "A time to wait cannot be negative."),
        ({"join_s": 0}, "A time to wait cannot be negative."),
        ({"rate_bytes_s": 31_999}, "A member sends 32,000 bytes a second at least."),
    ],
)
def test_limits_that_make_no_sense_get_a_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        Limits(**given)


def test_limits_at_their_bounds_are_taken() -> None:
    Limits(queue_bytes=1, outgoing_bytes=1, patience_s=0, linger_s=0, join_s=inf, rate_bytes_s=32_000)
