"""Members for threads: calls that block, from any thread, and errors where the caller waits."""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import antiphon
from antiphon import sync
from antiphon.core.errors import OutputError, UsageError
from antiphon.live.errors import LeftError
from tests.live.members import a_group_name

WITHIN_S = 120.0


@pytest.fixture
def pair() -> Iterator[tuple[sync.Group, sync.Group]]:
    name = a_group_name()
    joining = partial(sync.join, name, order="total")
    with joining(name="alice") as alice, joining(name="bob") as bob:
        for each in (alice, bob):
            each.wait_for_members(2, timeout=WITHIN_S)
        yield alice, bob


def test_messages_are_sent_read_and_found_stable(pair: tuple[sync.Group, sync.Group]) -> None:
    alice, bob = pair
    assert alice.members == {"alice", "bob"}
    sent = alice.send(b"one", timeout=WITHIN_S)
    sent.stable(timeout=WITHIN_S)
    alice.send_many([b"two", bytearray(b"three")], timeout=WITHIN_S)
    for each in pair:
        read = [each.receive(timeout=WITHIN_S) for _ in range(3)]
        assert [message.body for message in read] == [b"one", b"two", b"three"]
        assert read[0].id == sent.id
        assert (sent.id.sender, sent.id.number) == ("alice", 0)
    bob.send(b"four")
    assert [next(iter(each)).sender for each in pair] == ["bob", "bob"]


def test_several_threads_send_and_read_and_each_message_is_read_once(
    pair: tuple[sync.Group, sync.Group],
) -> None:
    alice, bob = pair
    wanted = {f"{thread}/{turn}".encode() for thread in range(4) for turn in range(50)}

    def send(thread: int) -> None:
        for turn in range(50):
            alice.send(f"{thread}/{turn}".encode(), timeout=WITHIN_S)

    def read(_: int) -> list[bytes]:
        return [bob.receive(timeout=WITHIN_S).body for _ in range(50)]

    with ThreadPoolExecutor(8) as threads:
        reading = [threads.submit(read, reader) for reader in range(4)]
        list(threads.map(send, range(4)))
        found = [body for future in reading for body in future.result()]
    assert len(found) == len(wanted)
    assert set(found) == wanted


def test_a_wait_that_is_over_loses_nothing(pair: tuple[sync.Group, sync.Group]) -> None:
    alice, bob = pair
    for call in (bob.receive, partial(bob.wait_for_members, 3)):
        with pytest.raises(TimeoutError, match="A call to 'bob' took longer"):
            call(timeout=0.01)
    alice.send(b"x")
    assert bob.receive(timeout=WITHIN_S).body == b"x"


def test_a_thread_that_waits_for_a_reader_has_its_own_time(pair: tuple[sync.Group, sync.Group]) -> None:
    _, bob = pair
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(bob.receive, timeout=WITHIN_S)
        with pytest.raises(TimeoutError):
            bob.receive(timeout=0.05)
        bob.send(b"x")
        assert first.result().body == b"x"


def test_a_leave_ends_what_others_wait_for_and_keeps_what_was_delivered() -> None:
    group = sync.join(a_group_name(), name="alice")
    group.send(b"kept").stable(timeout=WITHIN_S)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(group.wait_for_members, 2)
        group.leave()
        with pytest.raises(LeftError):
            waiting.result(WITHIN_S)
    group.leave()
    assert [message.body for message in group] == [b"kept"]
    with pytest.raises(LeftError, match="'alice' has left"):
        group.receive()
    with pytest.raises(LeftError, match="'alice' has left"):
        group.send(b"late")


def test_a_reader_ends_when_another_thread_leaves() -> None:
    group = sync.join(a_group_name(), name="alice")
    read: list[bytes] = []
    has_read = threading.Event()

    def reader() -> None:
        for message in group:
            read.append(message.body)
            has_read.set()

    thread = threading.Thread(target=reader)
    thread.start()
    group.send(b"x")
    assert has_read.wait(WITHIN_S)
    group.leave()
    thread.join(WITHIN_S)
    assert not thread.is_alive()
    assert read == [b"x"]


def test_what_ends_a_membership_is_raised_where_threads_wait_and_by_later_calls() -> None:
    group = sync.join(a_group_name(), name="alice")
    with ThreadPoolExecutor(2) as threads:
        waiting: list[Future[Any]] = [
            threads.submit(group.receive),
            threads.submit(group.wait_for_members, 2),
        ]
        group._loop.call_soon_threadsafe(group._live._failed, OutputError("The disk is full."))
        for each in waiting:
            with pytest.raises(OutputError, match="disk"):
                each.result(WITHIN_S)
    for _ in range(2):
        with pytest.raises(OutputError, match="disk"):
            next(iter(group))
        group.leave()


def test_an_interrupt_while_a_member_lingers_ends_it_at_once() -> None:
    group = sync.join(a_group_name(), name="alice", limits=antiphon.Limits(linger_s=1000))
    other = sync.join(group.group, name="bob")
    group.wait_for_members(2, timeout=WITHIN_S)
    assert other._live._member is not None
    other._loop.call_soon_threadsafe(other._live._member.stop)
    group.send(b"held by no other")
    main = threading.main_thread().ident
    assert main is not None
    interrupt = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT))
    interrupt.start()
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(list, group)
        with pytest.raises(KeyboardInterrupt):
            group.leave()
        reading.result(WITHIN_S)
    with pytest.raises(LeftError):
        group.send(b"late")
    other.leave(linger=False)


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"order": "none"}, UsageError, "no order 'none'"),
        ({"network": "multicast:nowhere", "insecure": True}, UsageError, "nowhere"),
        (
            {"order": "sequencer", "sequencer": "x", "limits": antiphon.Limits(join_s=0.2)},
            LeftError,
            "'x' did not",
        ),
    ],
)
def test_what_keeps_a_member_out_is_raised_by_join(
    options: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    before = threading.active_count()
    with pytest.raises(error, match=sentence):
        sync.join(a_group_name(), name="alice", **options)
    assert threading.active_count() == before


def test_a_callers_mistake_is_raised_where_it_is_made(pair: tuple[sync.Group, sync.Group]) -> None:
    alice, _ = pair
    with pytest.raises(UsageError, match="bytes, not int"):
        alice.send(5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="'carol' is not a member"):
        alice.send(b"x", to={"carol"})


def test_the_package_has_it() -> None:
    assert antiphon.sync is sync
