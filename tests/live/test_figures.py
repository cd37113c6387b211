"""What a member counts of its own work."""

import pytest

from antiphon.core.time import SECOND_NS
from antiphon.live.figures import Watch


@pytest.mark.parametrize(
    ("end", "timed"), [(1, []), (2, [1.0]), (3, [1.0]), (5, [1.0, 0.5]), (9, [1.0, 0.5])]
)
def test_a_batch_is_timed_until_all_of_it_is_delivered_and_until_it_is_stable(
    end: int, timed: list[float]
) -> None:
    watch = Watch()
    watch.admitted(2, 0)
    watch.admitted(5, SECOND_NS // 2)
    watch.delivered(end, SECOND_NS)
    assert (watch.delivery.count, watch.delivery.total_s) == (len(timed), sum(timed))
    assert watch.stability.count == 0
    watch.stable(end, SECOND_NS)
    watch.stable(end, 2 * SECOND_NS)
    assert (watch.stability.count, watch.stability.total_s) == (len(timed), sum(timed))
