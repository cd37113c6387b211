"""Feature flags behind an ASGI application: every process answers from its own replica.

`GET /flags/new-checkout` reads the process's own copy, without waiting for any other. `PUT` with a body of
`on` or `off` returns once a majority holds the new value. Run it with any ASGI server, a process per member:

    MEMBER=a uvicorn examples.feature_flags:app

This file calls the application itself, as two processes would be called.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

import antiphon

MEMBERS = ("a", "b")
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class FlagService:
    """The ASGI application. Its lifespan is that of its replica."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._flags: antiphon.Map | None = None

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            status, answer = await self._answer(scope, receive)
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    async def _live(self, receive: Receive, send: Send) -> None:
        objects = antiphon.Objects()
        async with antiphon.replicate("flags", objects, name=self._name, members=MEMBERS) as group:
            self._flags = antiphon.Map(group, "flags")
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: dict[str, Any], receive: Receive) -> tuple[int, object]:
        flag = scope["path"].removeprefix("/flags/")
        if self._flags is None or not flag or flag == scope["path"]:
            return 404, "there are flags below /flags/ only"
        if scope["method"] == "GET":
            return 200, self._flags.peek(flag, False)
        body = (await receive()).get("body", b"")
        if scope["method"] != "PUT" or body not in (b"on", b"off"):
            return 400, "put 'on' or 'off'"
        try:
            await self._flags.set(flag, body == b"on")
        except antiphon.CutOffError as error:
            return 503, str(error)
        return 200, body == b"on"


app = FlagService(os.environ.get("MEMBER", MEMBERS[0]))


# What a server does


async def start(service: FlagService) -> tuple[asyncio.Task[None], asyncio.Queue[dict[str, Any]]]:
    """Begin a service's lifespan, as an ASGI server does."""
    events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    started = asyncio.Event()

    async def send(_: dict[str, Any]) -> None:
        started.set()

    running = asyncio.create_task(service({"type": "lifespan"}, events.get, send))
    await events.put({"type": "lifespan.startup"})
    await started.wait()
    return running, events


async def request(service: FlagService, method: str, path: str, body: bytes = b"") -> tuple[int, object]:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    await service({"type": "http", "method": method, "path": path}, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def main() -> None:
    services = [FlagService(name) for name in MEMBERS]
    lives = await asyncio.gather(*map(start, services))
    print("b:", await request(services[1], "GET", "/flags/new-checkout"))
    print("a:", await request(services[0], "PUT", "/flags/new-checkout", b"on"))
    while (found := await request(services[1], "GET", "/flags/new-checkout")) == (200, False):
        await asyncio.sleep(0.01)
    print("b:", found)
    print("a:", await request(services[0], "PUT", "/flags/new-checkout", b"perhaps"))
    for running, events in lives:
        await events.put({"type": "lifespan.shutdown"})
        await running


if __name__ == "__main__":
    asyncio.run(main())
