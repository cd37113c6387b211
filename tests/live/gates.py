"""What tests of the gate share: transports before which it stands, and what comes to them."""

from collections.abc import Iterator

import pytest

from antiphon.live.networks import Address
from tests.live.guarded import Guarded
from tests.live.pairs import RING

KEYS = pytest.mark.parametrize("keys", [None, RING], ids=["open", "sealed"])


def place(number: int) -> Address:
    return ("10.1.0.1", number + 1)


def members(here: Guarded, count: int) -> None:
    for number in range(count):
        here.acquaint(number + 1, f"site{number}", place(number))


def strangers(count: int) -> Iterator[tuple[int, str, Address]]:
    for number in range(count):
        yield number + 1000, f"site{number}", place(number)
