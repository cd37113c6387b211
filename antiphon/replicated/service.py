"""The objects of a group for other processes of this machine: a Unix socket that takes JSON lines.

`antiphon kv serve` opens it beside its replica, and `antiphon kv` and `antiphon lock` are its clients. Only
processes of the same user can reach it. A request is one line, and so is its answer; a watch has many. What a
connection holds, such as a lock, is given back when it ends.
"""

import asyncio
import json
import math
import os
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from antiphon.core.errors import AntiphonError, UsageError
from antiphon.live.limits import require_group_name
from antiphon.replicated.objects import Lock, Map
from antiphon.replicated.objects.handle import Replica
from antiphon.trace.frames import safe_name

LONGEST_LINE: Final = 1 << 24
"""Bytes of a request or an answer."""
MOST_CONNECTIONS: Final = 1024

NO_REQUEST: Final = {"error": "This is no request.", "hint": None}
MISFITS: Final = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What a line raises that is no request."""

Request = dict[str, Any]
Answer = Callable[[Any], Coroutine[Any, Any, None]]


def runtime_folder() -> Path:
    """Where this user's sockets are."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given and Path(given).is_dir():
        return Path(given) / "antiphon"
    return Path(tempfile.gettempdir()) / f"antiphon-{os.getuid()}"


def group_folder(group: str) -> Path:
    return runtime_folder() / safe_name(group)


def socket_path(group: str, member: str) -> Path:
    """Where the replica `member` of a group listens."""
    return group_folder(group) / f"{safe_name(member)}.sock"


def _own_folder(folder: Path) -> None:
    """Make a folder that only this user may use; refuse one that belongs to another."""
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_own(each)


def _require_own(folder: Path) -> None:
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise UsageError(
            f"The folder {folder} belongs to another user, or others may write to it.",
            "Set XDG_RUNTIME_DIR to a folder of your own.",
        )


def _sockets_of(group: str) -> list[Path]:
    """The sockets of a group's replicas on this machine, if no other user can have put them there."""
    require_group_name(group)
    folder = group_folder(group)
    if not folder.is_dir():
        return []
    for each in (folder.parent, folder):
        _require_own(each)
    return sorted(folder.glob("*.sock"))


def _bound(path: Path) -> socket.socket:
    """A socket at a path, for this user alone."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~(stat.S_IRUSR | stat.S_IWUSR))
    try:
        made.bind(str(path))
    except BaseException:
        made.close()
        raise
    finally:
        os.umask(before)
    return made


@asynccontextmanager
async def serving(replica: Replica, path: Path) -> AsyncIterator[None]:
    """Serve a replica's objects on a socket for as long as the block runs."""
    _own_folder(path.parent)
    if await _answers(path):
        raise UsageError(f"Another process serves {path} already.", "Give each replica its own name.")
    path.unlink(missing_ok=True)
    service = _Service(replica)
    server = await asyncio.start_unix_server(service.connected, sock=_bound(path), limit=LONGEST_LINE)
    try:
        yield
    finally:
        server.close()
        await service.close()
        path.unlink(missing_ok=True)


async def _answers(path: Path) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    writer.close()
    return True


class _Service:
    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._connections: set[asyncio.Task[None]] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MOST_CONNECTIONS:
            writer.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, ValueError, asyncio.CancelledError):
            pass  # the client is gone, its line has no end, or the service ends
        finally:
            self._connections.discard(task)
            writer.close()

    async def close(self) -> None:
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def answer(value: Any) -> None:
            writer.write(json.dumps(_plain(value)).encode() + b"\n")
            await writer.drain()

        while line := await reader.readline():
            try:
                request = json.loads(line)
                work = self._work(request, answer)
            except MISFITS:
                await answer(NO_REQUEST)
                continue
            await self._until_gone(work, reader, answer)

    async def _until_gone(
        self, work: Coroutine[Any, Any, None], reader: asyncio.StreamReader, answer: Answer
    ) -> None:
        """Do a request until it is done, or until the client ends its side or is gone."""
        working = asyncio.ensure_future(work)
        ending = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ConnectionAbortedError
            await working
        except AntiphonError as error:
            await answer({"error": error.sentence, "hint": error.hint})
        except MISFITS:
            await answer(NO_REQUEST)
        finally:
            for task in (working, ending):
                task.cancel()
            await asyncio.gather(working, ending, return_exceptions=True)

    def _work(self, request: Request, answer: Answer) -> Coroutine[Any, Any, None]:
        name = str(request["object"])
        match request["do"]:
            case "get":
                return self._get(name, str(request["key"]), answer)
            case "set":
                return self._set(name, request, answer)
            case "delete":
                return self._delete(name, str(request["key"]), answer)
            case "items":
                return self._items(name, str(request.get("prefix", "")), answer)
            case "watch":
                return self._watch(name, request.get("key"), str(request.get("prefix", "")), answer)
            case "lock":
                return self._lock(name, request, answer)
        raise ValueError(request["do"])

    async def _get(self, name: str, key: str, answer: Answer) -> None:
        await answer({"value": await Map(self._replica, name).get(key)})

    async def _set(self, name: str, request: Request, answer: Answer) -> None:
        store, key, value = Map(self._replica, name), str(request["key"]), request["value"]
        expiry = request.get("expiry")
        if "old" in request:
            done = await store.compare_and_set(key, request["old"], value, expiry=expiry)
        else:
            await store.set(key, value, expiry=expiry)
            done = True
        await answer({"done": done})

    async def _delete(self, name: str, key: str, answer: Answer) -> None:
        await answer({"done": await Map(self._replica, name).delete(key)})

    async def _items(self, name: str, prefix: str, answer: Answer) -> None:
        items = await Map(self._replica, name).items()
        await answer({"items": {key: value for key, value in items.items() if key.startswith(prefix)}})

    async def _watch(self, name: str, key: str | None, prefix: str, answer: Answer) -> None:
        changes = Map(self._replica, name).watch(key, prefix=prefix)
        await answer({"watching": True})
        async for change in changes:
            await answer({"key": change.key, "value": change.value})

    async def _lock(self, name: str, request: Request, answer: Answer) -> None:
        """Hold a lock until the client is gone, or the lock is lost."""
        lock = Lock(self._replica, name)
        timeout = request.get("timeout")
        try:
            token = await (lock.try_acquire() if timeout == 0 else lock.acquire(timeout=timeout))
        except TimeoutError:
            token = None
        await answer({"token": token})
        if token is None:
            return
        try:
            await lock.lost(token)
            await answer({"lost": True})
        finally:
            with suppress(AntiphonError):
                await asyncio.shield(lock.release(token))


def _plain(value: Any) -> Any:
    """A value as JSON has it: programs may store what JSON has no form for, such as bytes."""
    match value:
        case dict():
            return {_plain(key): _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case bytes():
            return value.decode(errors="backslashreplace")
        case float() if not math.isfinite(value):
            return str(value)
        case str():
            return value.encode(errors="backslashreplace").decode()
    return value


class ServiceLostError(AntiphonError):
    """The replica that a command talked to is gone."""


class Connection:
    """A client's side of a service: requests and their answers, one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: Path) -> None:
        self._reader = reader
        self._writer = writer
        self.path = path

    async def ask(self, request: Request) -> dict[str, Any]:
        """Send a request, and return its first answer."""
        self._writer.write(json.dumps(request).encode() + b"\n")
        return await self.next()

    async def next(self) -> dict[str, Any]:
        """The next answer; AntiphonError if it is an error."""
        try:
            await self._writer.drain()
            line = await self._reader.readline()
        except ConnectionError:
            line = b""
        if not line:
            raise ServiceLostError(
                f"The replica at {self.path} is gone.", "Is antiphon kv serve still running?"
            )
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise AntiphonError(found["error"], found.get("hint"))
        return found


@asynccontextmanager
async def connected(group: str, at: Path | None = None) -> AsyncIterator[Connection]:
    """A connection to a replica of a group that runs on this machine, or to the socket named."""
    paths = [at] if at is not None else _sockets_of(group)
    for path in paths:
        try:
            reader, writer = await asyncio.open_unix_connection(path, limit=LONGEST_LINE)
        except OSError:
            continue
        try:
            yield Connection(reader, writer, path)
        finally:
            writer.close()
        return
    where = f"at {at}" if at is not None else f"of the group {group} on this machine"
    raise UsageError(
        f"There is no replica {where}.", f"Start one: antiphon kv serve {group} --name a --members a,b,c"
    )
