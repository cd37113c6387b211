"""Runs `antiphon` in processes that need not load it: one that has loaded it forks for each command.

Loading takes longer than most of what a member does on a stage, and stages start members by the hundred. All
else is as in a shell: the words go through the real command line, in a process with its own streams and
namespaces that can be killed and stopped. tests/cli/test_live_verbs.py starts members as a shell does.

A guardian between the server and each command waits for it and says how it ended: the tests' process cannot,
as the command is no child of its own.
"""

import atexit
import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

ROOT: Final = Path(__file__).parents[2]
PR_SET_PDEATHSIG: Final = 1
LONGEST_REQUEST: Final = 1 << 16
STREAMS: Final = 3
START_S: Final = 120.0


class Command:
    """A command that was started; as much of `subprocess.Popen` as stages use."""

    stderr = None

    def __init__(self, status: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.stdin: Final = stdin
        self.stdout: Final = stdout
        self.returncode: int | None = None
        self._status = status
        self.pid: Final = self._said(START_S, "to start")

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = self._said(timeout, "to end")
            os.close(self._status)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _said(self, timeout: float | None, what: str) -> int:
        """The guardian's next number; each is a line of its own, written at once."""
        if not select.select([self._status], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(["antiphon"], timeout or 0.0, f"waited for it {what}".encode())
        said = os.read(self._status, 16)
        assert said.endswith(b"\n"), "the guardian has been killed"
        return int(said)


class Server:
    """The process that forks, as the tests' process sees it."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.live.forks", str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def start(self, words: Sequence[str], namespaces: Sequence[str], stderr: IO[Any]) -> Command:
        """Run `antiphon` with these words, in these namespaces (files of /proc)."""
        with ExitStack() as stack:

            def pipe(ours: int) -> tuple[int, int]:
                """Our end and theirs, which is closed here once they have it."""
                ends = os.pipe()
                stack.callback(os.close, ends[1 - ours])
                return ends[ours], ends[1 - ours]

            stdin, its_stdin = pipe(1)
            stdout, its_stdout = pipe(0)
            status, its_status = pipe(0)
            request = json.dumps({"words": list(words), "namespaces": list(namespaces)}).encode()
            theirs = [its_stdin, its_stdout, stderr.fileno(), its_status]
            socket.send_fds(self._channel, [request], theirs)
        return Command(status, os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb"))

    def end(self) -> None:
        self._channel.close()
        self._process.wait()


@cache
def server() -> Server:
    """The tests' one server; it ends with them."""
    made = Server()
    atexit.register(made.end)
    return made


# Inside the server


def serve(channel: socket.socket) -> bool:
    """Fork for each request until the tests have ended; whether this is a fork, and a command's process."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guardians are nothing to wait for
    gc.freeze()
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, LONGEST_REQUEST, STREAMS + 1)
        if not request:
            return False
        if os.fork() == 0:
            channel.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            die_with_parent()
            guard(descriptors, **json.loads(request))
            return True
        for each in descriptors:
            os.close(each)


def guard(descriptors: Sequence[int], words: list[str], namespaces: list[str]) -> None:
    """Fork once more, and report the command; returns in the command's process alone."""
    *streams, status = descriptors
    child = os.fork()
    if child:
        for stream in streams:
            os.close(stream)
        os.write(status, b"%d\n" % child)
        _, how = os.waitpid(child, 0)
        os.write(status, b"%d\n" % os.waitstatus_to_exitcode(how))
        os._exit(0)
    os.close(status)
    die_with_parent()
    for place in [os.open(namespace, os.O_RDONLY | os.O_CLOEXEC) for namespace in namespaces]:
        if ctypes.CDLL(None, use_errno=True).setns(place, 0):
            raise OSError(ctypes.get_errno(), "The namespace cannot be entered")
        os.close(place)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.argv = ["antiphon", *words]


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    import antiphon.cli.node  # noqa: F401 (what each command needs, loaded once)
    from antiphon.cli.main import main

    with socket.socket(fileno=int(sys.argv[1])) as requests:
        is_command = serve(requests)
    if is_command:
        main()
