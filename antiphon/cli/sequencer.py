"""`antiphon sequencer`: a tag sequencer in a process of its own, which several groups share."""

import asyncio
import contextlib
import signal
from typing import Annotated

from cyclopts import Parameter

from antiphon.cli.console import say
from antiphon.cli.live_options import Insecure, Key, Network
from antiphon.live.keys import KeyFile
from antiphon.live.networks import parse_network
from antiphon.live.tag_channel import TagChannel, open_channel
from antiphon.live.tag_server import TagServer


def sequencer(
    name: Annotated[str, Parameter(help="the sequencer's name, which members give with --outside")],
    /,
    *,
    network: Network = "loopback",
    key: Key = None,
    insecure: Insecure = False,
) -> int:
    """Number the messages of all groups whose members say --order total --outside NAME. They send random tags
    here instead of messages, so this process cannot tell one group's from another's. While it is away those
    groups wait; once it is started again they go on. It keeps nothing on disk. Ends on SIGTERM or SIGINT.

    Example: antiphon sequencer tags
    """
    keys = None if key is None else KeyFile(key)
    channel = open_channel(name, parse_network(network), keys, insecure=insecure)
    asyncio.run(_serve(channel))
    return 0


async def _serve(channel: TagChannel) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with TagServer(channel, say) as server:
        say(f"The tag sequencer '{channel.name}' numbers what is sent to it.")
        waiting = asyncio.create_task(ended.wait())
        failing = asyncio.create_task(server.failed())
        await asyncio.wait((waiting, failing), return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            failing.result()
        for task in (waiting, failing):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await failing
        say(f"It has numbered {server.numbered:,} tags.")
