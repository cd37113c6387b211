"""The socket beside a replica: what it answers, and who can reach it."""

import asyncio
import json
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon.core.errors import UsageError
from antiphon.replicated.objects import Map, Objects
from antiphon.replicated.service import connected, serving, socket_path

Asking = Callable[[bytes], Awaitable[Any]]


def served(tmp_path: Path, story: Callable[[Map, Asking], Awaitable[None]]) -> None:
    """Run a story with a map of a replica of one member, and raw lines to its socket."""

    async def body() -> None:
        folder = tmp_path / "own"
        path = folder / "shop" / "a.sock"
        group = f"served-{os.getpid()}"
        async with (
            antiphon.replicate(group, Objects(), name="a", members={"a"}) as shop,
            serving(shop, path),
        ):
            reader, writer = await asyncio.open_unix_connection(path, limit=1 << 24)

            async def ask(line: bytes) -> Any:
                writer.write(line + b"\n")
                return json.loads(await reader.readline())

            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            await story(Map(shop), ask)
            writer.close()

    asyncio.run(asyncio.wait_for(body(), 60))


def test_values_without_a_form_in_json_are_answered_in_another(tmp_path: Path) -> None:
    async def story(prices: Map, ask: Asking) -> None:
        values: dict[str, Any] = {
            "bytes": b"a\xff", "far": float("inf"), "nested": {"x": b"x", "y": [None, True]}, "plain": "é",
        }  # fmt: skip
        for key, value in values.items():
            await prices.set(key, value)
        assert await ask(b'{"do": "items", "object": "map"}') == {
            "items": {"bytes": "a\\xff", "far": "inf", "nested": {"x": "x", "y": [None, True]}, "plain": "é"}
        }

    served(tmp_path, story)


@pytest.mark.parametrize(
    "line",
    [
        b"{}", b"[]", b"5", b'"get"', b"\xff", b"[" * 100_000,
        b'{"do": "frob", "object": "map"}',
        b'{"do": "set", "object": "map", "key": "x", "value": 1, "expiry": "soon"}',
        b'{"do": "set", "object": "map", "key": "x", "value": 1, "expiry": {}}',
        b'{"do": "lock", "object": "door", "timeout": "long"}',
    ],
    ids=lambda line: line[:40].decode(errors="replace"),
)  # fmt: skip
def test_what_is_no_request_is_answered_and_ends_nothing(tmp_path: Path, line: bytes) -> None:
    async def story(_prices: Map, ask: Asking) -> None:
        assert await ask(line) == {"error": "This is no request.", "hint": None}
        assert await ask(b'{"do": "get", "object": "map", "key": "x"}') == {"value": None}

    served(tmp_path, story)


@pytest.mark.parametrize("expiry", [b"Infinity", b"1e300", b"2e10", b"NaN", b"-1"])
def test_an_expiry_beyond_all_clocks_gets_a_sentence(tmp_path: Path, expiry: bytes) -> None:
    """Its end would not fit into a snapshot, which every replica takes sooner or later."""

    async def story(prices: Map, ask: Asking) -> None:
        request = b'{"do": "set", "object": "map", "key": "x", "value": 1, "expiry": %s}' % expiry
        answer = await ask(request)
        assert answer["error"] == "An expiry is a number of seconds above 0, and at most 100 years."
        await prices.set("y", 1, expiry=3e9)

    served(tmp_path, story)


def test_a_socket_in_a_folder_of_another_user_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    path = socket_path("shop", "a")
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o777)

    async def look() -> None:
        async with connected("shop"):
            raise AssertionError

    with pytest.raises(UsageError, match="others may write to it"):
        asyncio.run(look())
    path.parent.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: path.parent.stat().st_uid + 1)
    with pytest.raises(UsageError, match="belongs to another user"):
        asyncio.run(look())
    monkeypatch.undo()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(UsageError, match="There is no replica"):
        asyncio.run(look())
