"""`antiphon lock NAME -- command`: run a command while holding a replicated lock."""

import asyncio
import ctypes
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter, validators

from antiphon.cli.console import say
from antiphon.cli.kv import USUAL_GROUP, At, Group
from antiphon.core.errors import AntiphonError, UsageError
from antiphon.replicated.service import Connection, connected

TAKEN: Final = 75
"""The exit code if the lock was not to be had in time: that of a temporary failure in sysexits.h."""
TOKEN: Final = "ANTIPHON_TOKEN"
PR_SET_PDEATHSIG: Final = 1
PATIENCE_S: Final = 5.0
"""How long a command may take to end after its lock was lost, before it is killed."""


def lock(
    name: Annotated[str, Parameter(help="the lock's name")],
    command: Annotated[list[str], Parameter(help="the command to run, behind --", negative=())],
    /,
    *,
    timeout: Annotated[
        float | None,
        Parameter(
            help="seconds to wait for the lock; 0 means not at all", validator=validators.Number(gte=0)
        ),
    ] = None,
    group: Group = USUAL_GROUP,
    at: At = None,
) -> int:
    """Run a command while holding a lock of a group. A replica must run here: antiphon kv serve.

    The exit code is the command's; 75 if the lock was not free in time. ANTIPHON_TOKEN holds a number that
    grows with every holder: a resource that refuses smaller ones than it has seen is safe from late writers.
    The lock is released when the command ends, and also if this process is killed or its replica is lost: the
    command is stopped then.

    Example: antiphon lock backup -- rsync -a data/ server:data/
    """
    program = shutil.which(command[0])
    if program is None:
        raise UsageError(f"There is no command {command[0]!r}.", "antiphon lock NAME -- COMMAND ARGUMENTS")
    return asyncio.run(_hold_and_run(name, [program, *command[1:]], timeout, group, at))


async def _hold_and_run(
    name: str, command: list[str], timeout: float | None, group: str, at: Path | None
) -> int:
    async with connected(group, at) as replica:
        token = (await replica.ask({"do": "lock", "object": name, "timeout": timeout}))["token"]
        if token is None:
            say(f"The lock {name} is taken.")
            return TAKEN
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, TOKEN: str(token)}, preexec_fn=_end_with_parent
        )
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, _forward, process, number)
        running = asyncio.ensure_future(process.wait())
        losing = asyncio.ensure_future(_lost(replica))
        await asyncio.wait((running, losing), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            say(f"The lock {name} is lost: {losing.result()} The command is stopped.")
            await _stop(process, running)
        losing.cancel()
        code = await running
        return code if code >= 0 else 128 - code


async def _lost(replica: Connection) -> str:
    """Wait until the lock is lost; why, as a sentence."""
    try:
        await replica.next()
    except AntiphonError as error:
        return error.sentence
    return "the group believed that its holder was gone."


async def _stop(process: asyncio.subprocess.Process, running: "asyncio.Future[int]") -> None:
    _forward(process, signal.SIGTERM)
    try:
        await asyncio.wait_for(asyncio.shield(running), PATIENCE_S)
    except TimeoutError:
        _forward(process, signal.SIGKILL)


def _forward(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if process.returncode is None:
        process.send_signal(number)


def _end_with_parent() -> None:
    """Ask Linux to end the command if this process is killed: it would run on without the lock."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
