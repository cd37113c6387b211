"""Keys that change while a group runs: members take them up from their files, and nothing is lost."""

import asyncio
from pathlib import Path

import pytest

from antiphon.live import transport as live_transport
from antiphon.live.keys import FILE_MODE, KeyRing, read_keys, replace_keys, write_keys
from antiphon.testing import cluster, run
from tests.live.members import joined, read, within
from tests.live.pairs import OTHER_RING

LOOK_NS = 20_000_000


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_transport, "KEY_LOOK_NS", LOOK_NS)


async def changed(groups: list[object], times: int) -> None:
    while any(group.counters["key_changes"] < times for group in groups):  # type: ignore[attr-defined]
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("order", ["fifo", "causal", "total", "sequencer"])
def test_a_key_is_rotated_under_load_and_nothing_is_lost(order: str, tmp_path: Path) -> None:
    path = tmp_path / "group.key"
    write_keys(path, KeyRing.generate())
    first = read_keys(path).keys[0]

    async def body() -> None:
        async with cluster("abc", order=order, key=path) as groups:
            rotating = True
            sent = dict.fromkeys("abc", 0)

            async def load(group: object) -> None:
                while rotating:
                    await group.send(b"x" * 3000)  # type: ignore[attr-defined]
                    sent[group.name] += 1  # type: ignore[attr-defined]
                    await asyncio.sleep(0.001)

            async def rotate() -> None:
                nonlocal rotating
                for times, step in enumerate((KeyRing.added, KeyRing.promoted, KeyRing.retired), start=1):
                    replace_keys(path, step(read_keys(path)))
                    await changed(list(groups), times)
                rotating = False

            reading = [asyncio.ensure_future(collect(group)) for group in groups]
            await asyncio.gather(*(load(group) for group in groups), rotate())
            for group in groups:
                await group.send(b"end")
            for heard in await asyncio.gather(*reading):
                assert heard == sent
            for group in groups:
                assert group.counters["drops"].get("sealed under a key that is not ours", 0) == 0
                assert group.counters["key_sealed_pdus"] > 0
        assert read_keys(path).keys[0] != first

    async def collect(group: object) -> dict[str, int]:
        heard, ends = dict.fromkeys("abc", 0), 0
        async for message in group:  # type: ignore[attr-defined]
            if message.body == b"end":
                ends += 1
                if ends == 3:
                    break
            else:
                heard[message.sender] += 1
        return heard

    run(body())  # on simulated time: a busy machine would make members of a total order miss messages


def test_who_has_only_the_old_key_is_out_once_it_is_retired(tmp_path: Path) -> None:
    path, old = tmp_path / "group.key", tmp_path / "old.key"
    write_keys(path, KeyRing.generate())
    write_keys(old, read_keys(path))

    async def body() -> None:
        from antiphon.live.joining import join

        async with joined("a", "b", key=path) as (a, b), join(a.group, name="c", key=old) as c:
            await asyncio.gather(*(each.wait_for_members(3) for each in (a, b, c)))
            for times, step in enumerate((KeyRing.added, KeyRing.promoted, KeyRing.retired), start=1):
                replace_keys(path, step(read_keys(path)))
                await changed([a, b], times)
            while "c" in a.members or "c" in b.members:
                await anext(a.presence())
                await asyncio.sleep(0.01)
            await a.send(b"for those who have the key")
            assert (await read(b, 1))[0][2] == b"for those who have the key"

    within(body())


def test_a_key_file_that_becomes_bad_is_told_once_and_the_old_keys_stay(tmp_path: Path) -> None:
    path = tmp_path / "group.key"
    write_keys(path, KeyRing.generate())

    async def body() -> None:
        async with joined("a", "b", key=path) as (a, b):
            events = a.presence()
            path.write_text("nonsense\n")
            async for event in events:
                if event.kind == "refused":
                    break
            assert "There is no key on line 1" in event.reason
            assert "The previous keys stay in use." in event.reason
            await a.send(b"x")
            assert await read(b, 1) == [("a", 0, b"x")]
            path.unlink()
            write_keys(path, OTHER_RING)
            await changed([a, b], 1)
            await a.wait_for_members(2)
            await a.send(b"y")
            assert (await read(b, 1))[0][2] == b"y"
            assert sum(count for reason, count in a.counters["refusals"].items() if "line 1" in reason) == 1

    assert FILE_MODE == 0o600
    within(body())
