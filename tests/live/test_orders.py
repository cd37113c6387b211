"""The orders and their options: one declaration, wherever they are given."""

import asyncio
from pathlib import Path

import pytest

import antiphon
from antiphon.core.errors import UsageError
from antiphon.live.orders import (
    ORDERS,
    Causal,
    Fifo,
    Sequencer,
    Total,
    TotalAcross,
    make_order,
    options_table,
)
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
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(
    order: str, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(UsageError) as raised:
        make_order(order, options)
    assert str(raised.value).startswith(sentence)


def test_the_fingerprint_has_what_all_must_share_with_the_defaults_filled_in() -> None:
    assert Total().fingerprint() == {"order": "total", "service": "sequencer"}
    assert Fifo(suspect_after_ns=10**9).fingerprint() == Fifo(stability="coordp").fingerprint()
    assert Fifo(piggyback=True).fingerprint()["stability"] == "fulldist"
    assert Causal(confirm_ns=5).fingerprint() == {"order": "causal"}
    assert TotalAcross(bypass=True).fingerprint()["bypass"] == "True"


def test_every_option_reaches_the_protocol() -> None:
    assert Fifo(suspect_after_ns=123_000_000).configuration().suspect_after_ns == 123_000_000
    assert TotalAcross(suspect_after_ns=123_000_000).configuration().suspect_ns == 123_000_000
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
