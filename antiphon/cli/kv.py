"""`antiphon kv`: a replicated map from the shell, and the replicas that hold it."""

import asyncio
import json as encoding
import signal
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import App, Parameter

from antiphon.cli.console import print_json, print_text, say
from antiphon.cli.live_options import Insecure, Key, Network
from antiphon.core.errors import UsageError
from antiphon.replicated.service import connected, serving, socket_path

NOT_THERE: Final = 1
"""The exit code for a key without a value, and for a condition that does not hold."""
USUAL_GROUP: Final = "objects"
USUAL_MAP: Final = "map"

Group = Annotated[str, Parameter(help="the group that holds the object")]
At = Annotated[Path | None, Parameter(help="the socket of a replica, if it is not found by the group's name")]
Object = Annotated[str, Parameter(name="--map", help="the map's name in the group")]
Json = Annotated[bool, Parameter(help="print JSON", negative=())]

app = App(
    name="kv",
    help="A replicated map: every replica has it, a majority keeps it.",
    help_epilogue="Example: antiphon kv set apple 3",
)


@app.command(help_epilogue="Example: antiphon kv serve shop --name a --members a,b,c --store out/a")
def serve(
    group: Annotated[str, Parameter(help="the group's name")] = USUAL_GROUP,
    /,
    *,
    name: Annotated[str, Parameter(help="this replica's name")] = "a",
    members: Annotated[
        str | None, Parameter(help="all replicas' names, such as a,b,c [default: this one alone]")
    ] = None,
    expected: Annotated[
        int | None, Parameter(help="instead of the names, how many replicas form the group")
    ] = None,
    store: Annotated[Path | None, Parameter(help="folder that keeps the state over restarts")] = None,
    network: Network = "loopback",
    key: Key = None,
    insecure: Insecure = False,
    trace: Annotated[Path | None, Parameter(help="folder to record the calls in, for antiphon audit")] = None,
    at: Annotated[Path | None, Parameter(help="where to put the socket for other processes")] = None,
) -> int:
    """Run a replica until SIGTERM or SIGINT, and let other processes of this machine use its objects.

    It says on stderr when it is ready. A majority of the members must run.
    """
    if expected is not None and members is not None:
        raise UsageError("The group is known by its members or by their number.", "Leave out one of them.")
    names = [each.strip() for each in (members or name).split(",")]
    if name not in names or not all(names) or len(set(names)) < len(names):
        raise UsageError(
            f"The members {members} are no list of different names with {name} among them.",
            "Write --name a --members a,b,c",
        )
    path = at or socket_path(group, name)
    asyncio.run(
        _serve(
            group,
            name,
            set(names) if expected is None else set(),
            path,
            expected=expected,
            store=store,
            network=network,
            key=key,
            insecure=insecure,
            trace=trace,
        )
    )
    return 0


async def _serve(group: str, name: str, members: set[str], path: Path, **options: Any) -> None:
    from antiphon.replicated import replicate
    from antiphon.replicated.objects import Objects

    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    ending = asyncio.ensure_future(ended.wait())
    working = asyncio.ensure_future(
        _take_part(replicate(group, Objects(), name=name, members=members, **options), path, ended)
    )
    await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if not working.done():
        working.cancel()
    await working


@app.command(name="set", help_epilogue="Example: antiphon kv set apple 3 --expiry 60")
def set_(
    key: str,
    value: str,
    /,
    *,
    expiry: Annotated[float | None, Parameter(help="seconds until the key loses its value")] = None,
    old: Annotated[str | None, Parameter(name="--if", help="set the key only if it has this value")] = None,
    if_absent: Annotated[bool, Parameter(help="set the key only if it has no value", negative=())] = False,
    group: Group = USUAL_GROUP,
    map_: Object = USUAL_MAP,
    at: At = None,
) -> int:
    """Set a key. The command ends once a majority of the replicas holds the value.

    Exit code 1: the condition did not hold, and nothing was changed.
    """
    if old is not None and if_absent:
        raise UsageError("A key has a value or it has none.", "Take either --if or --if-absent.")
    if expiry is not None and not expiry > 0:
        raise UsageError("An expiry is a number of seconds above 0.")
    request: dict[str, Any] = {"do": "set", "object": map_, "key": key, "value": value, "expiry": expiry}
    if old is not None or if_absent:
        request["old"] = old
    if _ask(group, at, request)["done"]:
        return 0
    say(f"{key} has another value; nothing was changed.")
    return NOT_THERE


@app.command(help_epilogue="Example: antiphon kv get apple")
def get(
    key: str, /, *, group: Group = USUAL_GROUP, map_: Object = USUAL_MAP, at: At = None, json: Json = False
) -> int:
    """Print the value of a key: the latest, wherever it was set. Exit code 1: it has no value."""
    value = _ask(group, at, {"do": "get", "object": map_, "key": key})["value"]
    if json:
        print_json({"key": key, "value": value})
    elif value is not None:
        print_text(shown(value))
    if value is None:
        say(f"{key} has no value.")
        return NOT_THERE
    return 0


@app.command(help_epilogue="Example: antiphon kv delete apple")
def delete(key: str, /, *, group: Group = USUAL_GROUP, map_: Object = USUAL_MAP, at: At = None) -> int:
    """Remove a key. Exit code 1: it had no value."""
    if _ask(group, at, {"do": "delete", "object": map_, "key": key})["done"]:
        return 0
    say(f"{key} has no value.")
    return NOT_THERE


@app.command(name="list", help_epilogue="Example: antiphon kv list --prefix fruit/")
def list_(
    *,
    prefix: Annotated[str, Parameter(help="only keys that begin so")] = "",
    group: Group = USUAL_GROUP,
    map_: Object = USUAL_MAP,
    at: At = None,
    json: Json = False,
) -> int:
    """Print all keys and values, a line for each."""
    items = _ask(group, at, {"do": "items", "object": map_, "prefix": prefix})["items"]
    if json:
        print_json(items)
        return 0
    for key, value in items.items():
        print_text(f"{key} {shown(value)}")
    return 0


@app.command(help_epilogue="Example: antiphon kv watch --prefix fruit/")
def watch(
    key: Annotated[str | None, Parameter(help="the key to watch; all by default")] = None,
    /,
    *,
    prefix: Annotated[str, Parameter(help="watch all keys that begin so")] = "",
    count: Annotated[int | None, Parameter(help="end after this many changes")] = None,
    group: Group = USUAL_GROUP,
    map_: Object = USUAL_MAP,
    at: At = None,
    json: Json = False,
) -> int:
    """Print each change as it happens: the key and its value, or the key alone once it has none.

    Says on stderr when it begins to watch. Ends on SIGINT.
    """
    if key is not None and prefix:
        raise UsageError("A watch is of one key or of a prefix.", "Leave one of them out.")
    asyncio.run(_watch(group, at, {"do": "watch", "object": map_, "key": key, "prefix": prefix}, count, json))
    return 0


async def _watch(group: str, at: Path | None, request: dict[str, Any], count: int | None, json: bool) -> None:
    async with connected(group, at) as replica:
        await replica.ask(request)
        say(f"Watching {request['object']} of {group}.")
        seen = 0
        while count is None or seen < count:
            change = await replica.next()
            seen += 1
            if json:
                print_json(change)
            else:
                text = "" if change["value"] is None else f" {shown(change['value'])}"
                print_text(f"{change['key']}{text}")


def shown(value: Any) -> str:
    """A value for people: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else encoding.dumps(value)


def _ask(group: str, at: Path | None, request: dict[str, Any]) -> dict[str, Any]:
    async def asking() -> dict[str, Any]:
        async with connected(group, at) as replica:
            return await replica.ask(request)

    return asyncio.run(asking())


async def _take_part(member: Any, path: Path, ended: asyncio.Event) -> None:
    telling = asyncio.ensure_future(_tell(member))
    try:
        async with member as replica, serving(replica, path):
            say(f"{replica.name} is ready; its socket is {path}.")
            await ended.wait()
    except asyncio.CancelledError:
        if not ended.is_set():
            raise
    finally:
        telling.cancel()


async def _tell(member: Any) -> None:
    """Say on stderr what keeps calls waiting, and who is not let in."""
    async for event in member.events():
        sentence = _sentence(event)
        if sentence:
            say(sentence)


def _sentence(event: Any) -> str:
    from antiphon.live.events import CutOff, Disagreed, Refused
    from antiphon.replicated.events import Restored, StoreFailed, StoreRecovered

    match event:
        case StoreFailed(reason=reason):
            return f"{reason} Calls wait until it can."
        case StoreRecovered():
            return "The store can be written again."
        case CutOff(reason=reason):
            return reason
        case Restored():
            return "A majority is in contact again."
        case Refused(site=site, reason=reason) | Disagreed(site=site, reason=reason):
            return f"{site}: {reason}"
    return ""
