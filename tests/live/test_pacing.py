"""When datagrams leave: at the rate, in small bursts, repairs besides what is new, and nothing twice."""

from antiphon.core.time import MILLISECOND_NS, SECOND_NS
from antiphon.live.congestion import Controller
from antiphon.live.members import Known
from antiphon.live.pacing import (
    AGAIN_NS,
    LEAST_BURST_BYTES,
    LEAST_QUEUED_BYTES,
    MOST_REMEMBERED,
    MOST_REPAIR_BYTES,
    Pacer,
    Waiting,
)

MS = MILLISECOND_NS
EACH = 1000
RATE = 1_000_000.0


def member(name: str) -> Known:
    return Known((1, ("127.0.0.1", 1)), 1, name, ("127.0.0.1", 1), None, 0, 0)


def load(
    count: int, counter: int = 1, members: tuple[Known, ...] | None = None, bodies: object = None
) -> Waiting:
    datagrams = [(bytes(100), memoryview(bytes(EACH - 100)))] * count
    return Waiting(counter, datagrams, (("127.0.0.1", 1),), members, bodies)


class Road:
    """A pacer at a megabyte a second, and what has left."""

    def __init__(self) -> None:
        self.left: list[tuple[int, int]] = []
        controller: Controller[Known] = Controller()
        controller.rate = RATE
        self.pacer = Pacer(controller, self.send)
        self.pacer.is_clear(SECOND_NS)

    def send(self, waiting: Waiting) -> int:
        self.left.append((waiting.counter, len(waiting.datagrams)))
        return EACH * len(waiting.datagrams)

    def count(self, counter: int | None = None) -> int:
        return sum(count for known, count in self.left if counter in (None, known))


def test_datagrams_leave_at_the_rate_in_small_bursts() -> None:
    road = Road()
    road.pacer.add(load(100))
    road.pacer.drain(SECOND_NS)
    assert road.count() == LEAST_BURST_BYTES // EACH
    for step in range(1, 51):
        before = road.count()
        road.pacer.drain(SECOND_NS + step * MS)
        assert road.count() - before <= 2
    assert 50 <= road.count() <= 54
    assert road.pacer.has_queue
    assert not road.pacer.is_clear(SECOND_NS + 50 * MS)
    road.pacer.drain(2 * SECOND_NS)
    assert road.count() - 54 <= LEAST_BURST_BYTES // EACH + 1, "time that has passed is no credit"


def test_what_was_said_besides_takes_tokens() -> None:
    road = Road()
    road.pacer.charge(5 * EACH)
    assert not road.pacer.is_clear(SECOND_NS)
    due_ns = road.pacer.due_ns(SECOND_NS)
    assert SECOND_NS + MS < due_ns < SECOND_NS + 10 * MS
    assert not road.pacer.is_clear(due_ns - MS)
    assert road.pacer.is_clear(due_ns + MS)


def test_repairs_get_half_while_something_new_waits_and_all_otherwise() -> None:
    road = Road()
    road.pacer.add(load(20, counter=1))
    road.pacer.add(load(40, counter=2), is_repair=True)
    for step in range(1, 36):
        road.pacer.drain(SECOND_NS + step * MS)
    assert abs(road.count(1) - road.count(2)) <= LEAST_BURST_BYTES // EACH + 1
    for step in range(36, 100):
        road.pacer.drain(SECOND_NS + step * MS)
    assert (road.count(1), road.count(2)) == (20, 40)
    assert not road.pacer.has_queue


def test_queues_are_bounded() -> None:
    road = Road()
    most = LEAST_QUEUED_BYTES // EACH
    assert road.pacer.add(load(most))
    assert not road.pacer.add(load(1))
    assert road.pacer.add(load(MOST_REPAIR_BYTES // EACH), is_repair=True)
    assert not road.pacer.add(load(1), is_repair=True)
    for step in range(1, 3000):
        road.pacer.drain(SECOND_NS + step * MS)
    assert road.pacer.add(load(most))
    assert road.pacer.add(load(1), is_repair=True)


def test_a_pdu_waits_until_all_of_it_has_left() -> None:
    road = Road()
    road.pacer.add(load(10, counter=7))
    road.pacer.drain(SECOND_NS)
    assert road.pacer.is_waiting(7)
    assert not road.pacer.is_waiting(8)
    road.pacer.drain(SECOND_NS + 3 * MS)
    road.pacer.drain(SECOND_NS + 6 * MS)
    road.pacer.drain(SECOND_NS + 9 * MS)
    assert not road.pacer.is_waiting(7)


def test_the_same_messages_are_not_sent_again_to_the_same_members_while_they_are_under_way() -> None:
    road, bodies = Road(), object()
    a, b = (member("a"),), (member("b"),)
    now = SECOND_NS
    assert not road.pacer.is_under_way(now, load(1, members=a, bodies=bodies))
    road.pacer.add(load(1, members=a, bodies=bodies))
    assert road.pacer.is_under_way(now + 10 * AGAIN_NS, load(1, members=a, bodies=bodies)), "it waits"
    assert not road.pacer.is_under_way(now, load(1, members=b, bodies=bodies))
    assert not road.pacer.is_under_way(now, load(1, members=a, bodies=object()))
    assert not road.pacer.is_under_way(now, load(1, members=a))
    road.pacer.drain(now)
    assert road.pacer.is_under_way(now + AGAIN_NS - 1, load(1, members=a, bodies=bodies))
    assert not road.pacer.is_under_way(now + AGAIN_NS, load(1, members=a, bodies=bodies))


def test_messages_that_found_no_room_are_not_under_way() -> None:
    road, bodies = Road(), object()
    assert road.pacer.add(load(LEAST_QUEUED_BYTES // EACH))
    assert not road.pacer.add(load(1, bodies=bodies))
    assert not road.pacer.is_under_way(SECOND_NS, load(1, bodies=bodies))


def test_messages_that_have_left_are_let_go() -> None:
    road = Road()
    for counter in range(3):
        bodies = object()
        assert not road.pacer.is_under_way(SECOND_NS, load(2, counter, bodies=bodies))
        road.pacer.add(load(2, counter, bodies=bodies))
    road.pacer.drain(SECOND_NS)
    assert road.count() == 3
    road.pacer.forget(SECOND_NS + AGAIN_NS - 1)
    assert len(road.pacer._recent) == 3
    road.pacer.forget(SECOND_NS + AGAIN_NS)
    assert len(road.pacer._recent) == 2, "the others wait"
    road.pacer.drain(SECOND_NS + 10 * MS)
    road.pacer.forget(SECOND_NS + 10 * MS + AGAIN_NS)
    assert not road.pacer._recent


def test_what_is_under_way_is_remembered_up_to_a_limit() -> None:
    road = Road()
    kept = [object() for _ in range(MOST_REMEMBERED + 1)]
    for bodies in kept:
        assert not road.pacer.is_under_way(SECOND_NS, load(1, bodies=bodies))
        road.pacer._remember(load(1, bodies=bodies))
    assert len(road.pacer._recent) == MOST_REMEMBERED
    assert road.pacer.is_under_way(SECOND_NS, load(1, bodies=kept[-1]))
    assert not road.pacer.is_under_way(SECOND_NS, load(1, bodies=kept[0]))
