"""What `antiphon.join` refuses before anything is opened."""

from typing import Any

import pytest

from antiphon.core.errors import UsageError
from antiphon.live.joining import join
from antiphon.live.limits import Limits

WRONG: list[dict[str, Any]] = [
    {"group": 5},
    {"group": b"shop"},
    {"name": 5},
    {"name": b"a"},
    {"order": None},
    {"order": []},
    {"profile": 1},
    {"network": None},
    {"network": b"loopback"},
    {"key": 5},
    {"key": "\0"},
    {"key": "\ud800"},
    {"insecure": "no"},
    {"trace": 1.5},
    {"trace": "a\0b"},
    {"run": 5},
    {"history": True},
    {"history": "\0"},
    {"history": "h", "history_bytes": float("nan")},
    {"history": "h", "history_bytes": float("inf")},
    {"history": "h", "history_bytes": True},
    {"history": "h", "history_bytes": "1000000"},
    {"catch_up": 1},
    {"limits": {}},
    {"limits": 5},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_an_argument_that_makes_no_sense_gets_a_sentence(wrong: dict[str, Any]) -> None:
    given = {"group": "shop", "name": "a", **wrong}
    with pytest.raises(UsageError):
        join(given.pop("group"), **given)


@pytest.mark.parametrize("option", ["queue_bytes", "patience_s", "linger_s", "join_s", "rate_bytes_s"])
def test_a_limit_that_no_clock_and_no_memory_can_hold_gets_a_sentence(option: str) -> None:
    with pytest.raises(UsageError, match=option):
        Limits(**{option: 10**400})
