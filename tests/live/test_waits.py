"""Waits for own messages to be delivered."""

import pytest

from antiphon.live.errors import MissedError
from antiphon.live.waits import PLACES_KEPT, DeliveryWaits
from tests.live.members import within


@pytest.mark.parametrize(
    ("runs", "is_delivered"),
    [
        pytest.param([(0, 3, None), (3, 8, None)], True, id="none is missing"),
        pytest.param([(0, 3, None), (4, 8, None)], True, id="another is missing"),
        pytest.param([(0, 4, None), (5, 8, None)], False, id="it is missing"),
    ],
)
def test_a_message_between_two_that_were_delivered_is_delivered_only_if_it_was(
    runs: list[tuple[int, int, int | None]], is_delivered: bool
) -> None:
    async def body() -> None:
        board = DeliveryWaits()
        for run in runs:
            board.note(*run)
        if is_delivered:
            assert await board.wait(4) is None
        else:
            with pytest.raises(MissedError):
                await board.wait(4)

    within(body())


def test_messages_without_a_position_that_follow_one_another_are_remembered_as_one_run() -> None:
    async def body() -> None:
        board = DeliveryWaits()
        for number in range(PLACES_KEPT + 1):
            board.note(number, number + 1, None)
        assert await board.wait(0) is None

    within(body())
