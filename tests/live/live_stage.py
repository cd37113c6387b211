"""The real stage: `antiphon node` processes on hosts of their own, over UDP multicast, with a key."""

import json
import os
import queue
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, Final, Self

from antiphon.core.ids import Site
from tests.live.forks import Command, server
from tests.live.hosts import Hosts, end, hold
from tests.live.stage import Stage

GROUP: Final = "stage"
LOOK_S: Final = 0.01
JOIN_S: Final = 120.0
LEAVE_S: Final = 120.0
ANTIPHON: Final = Path(sys.executable).with_name("antiphon")


class Node:
    """One `antiphon node`, with a thread that reads its output and one that writes its input."""

    def __init__(self, process: Command, hear: Callable[[dict[str, Any]], None]) -> None:
        self.process: Final = process
        self.joined: Final = threading.Event()
        self.reading: Final = threading.Event()
        self.reading.set()
        self._hear = hear
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._read, args=(process.stdout,), daemon=True),
            threading.Thread(target=self._write, args=(process.stdin,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def say(self, lines: Sequence[bytes]) -> None:
        self._lines.put(b"".join(line + b"\n" for line in lines))

    def end_input(self) -> None:
        self._lines.put(None)

    def await_end(self) -> int:
        """Its exit code, once it has ended and all that it said has been heard."""
        code = self.process.wait(LEAVE_S)
        self.reading.set()
        self._lines.put(None)
        for thread in self._threads:
            thread.join(LEAVE_S)
        return code

    def _read(self, stream: IO[bytes]) -> None:
        while True:
            self.reading.wait()
            line = stream.readline()
            if not line.endswith(b"\n"):
                return  # the end; what was killed may have left half a line
            self.joined.set()
            self._hear(json.loads(line))

    def _write(self, stream: IO[bytes]) -> None:
        with suppress(BrokenPipeError):
            while (lines := self._lines.get()) is not None:
                stream.write(lines)
                stream.flush()
        with suppress(BrokenPipeError):
            stream.close()


class LiveStage(Stage):
    """Hosts, a node on each, and one trace of all of them; a context manager."""

    def __init__(
        self,
        members: int,
        order: str,
        folder: Path,
        *,
        key: Path,
        options: Mapping[str, Any] | None = None,
        queue_mb: int = 64,
        disk_bytes: Mapping[Site, int] | None = None,
        mtu: int = 1500,
    ) -> None:
        self._hosts = Hosts(members, mtu=mtu)
        super().__init__(members, order, self._hosts.weather)
        self._folder = folder
        self._key = key
        self._options = dict(options or {})
        self._queue_mb = queue_mb
        self._disk_bytes = dict(disk_bytes or {})
        self._disks: dict[Site, int] = {}
        self._stack = ExitStack()
        self._nodes: dict[Site, Node] = {}
        self._met: dict[Site, set[Site]] = {site: set() for site in self.sites}

    def __enter__(self) -> Self:
        try:
            (self._folder / "events").mkdir(parents=True)
            self._stack.enter_context(self._hosts)
            for site, size in self._disk_bytes.items():
                self._disks[site] = self._small_disk(size)
            self._nodes = {site: self._start(site) for site in self.sites}
            self._until_together()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wait(self, condition: Callable[[], bool], deadline_s: float) -> bool:
        deadline = time.monotonic() + deadline_s
        while not condition():
            if time.monotonic() >= deadline:
                return False
            for site in self.present():
                assert not self.ended(site), f"{site} has ended by itself.\n{self.describe()}"
            time.sleep(LOOK_S)
        return True

    def kill(self, site: Site) -> None:
        self._nodes[site].process.kill()
        self._nodes[site].await_end()
        self.gone.add(site)
        self.missed.add(site)

    def leave(self, site: Site) -> None:
        self.gone.add(site)
        self.missed.add(site)
        self._nodes[site].end_input()
        code = self._nodes[site].await_end()
        assert code == 0, f"{site} ended with code {code}: {self.errors(site)}"

    def restart(self, site: Site) -> None:
        self._nodes[site] = self._start(site)
        self._until_joined(site)

    def stop(self, site: Site) -> None:
        os.kill(self._nodes[site].process.pid, signal.SIGSTOP)
        self.gone.add(site)

    def proceed(self, site: Site) -> None:
        os.kill(self._nodes[site].process.pid, signal.SIGCONT)
        self.gone.discard(site)

    def stop_reading(self, site: Site) -> None:
        self._nodes[site].reading.clear()

    def read_again(self, site: Site) -> None:
        self._nodes[site].reading.set()

    def memory(self) -> dict[Site, int]:
        return {site: resident_bytes(self._nodes[site].process.pid) for site in self.present()}

    def finish(self) -> Path:
        """The sequencer leaves last: while it is away no other member can take its place."""
        for site in reversed(self.present()):
            self.leave(site)
        for site, holder in self._disks.items():
            kept = Path(f"/proc/{holder}/root/{self._folder.absolute()}/events")
            for segment in kept.iterdir():
                shutil.copy(segment, self._folder / "events" / segment.name)
            assert site in self.sites
        return self._folder

    def ended(self, site: Site) -> bool:
        """Whether a node has ended by itself."""
        return self._nodes[site].process.poll() is not None

    def errors(self, site: Site) -> str:
        """What a site's nodes have said on stderr."""
        return self._talk(site).read_text()

    def describe(self) -> str:
        talk = "\n".join(f"  {site} said: {self.errors(site)}" for site in self.sites if self.errors(site))
        switch = self._hosts.switch
        return f"{super().describe()}\n  {switch.passed} frames passed, {switch.dropped} dropped\n{talk}"

    # Inside

    def _hand_in(self, site: Site, bodies: Sequence[bytes]) -> None:
        self._nodes[site].say(bodies)

    def _start(self, site: Site) -> Node:
        words = [
            "node", GROUP, "--name", site, "--order", self.order, "--json",
            "--network", "multicast:eth0", "--key", str(self._key), "--trace", str(self._folder),
            "--queue", str(self._queue_mb),
        ]  # fmt: skip
        for option, value in self._options.items():
            words += [f"--{option}"] if value is True else [f"--{option}", value]
        if self.order == "sequencer":
            words += ["--sequencer", self.sites[0]]
        words += self._arguments(site)
        namespaces = [self._hosts.network(self.sites.index(site))]
        if site in self._disks:
            namespaces.append(f"/proc/{self._disks[site]}/ns/mnt")
        with self._talk(site).open("ab") as talk:
            process = server().start(words, namespaces, talk)
        self._stack.callback(end, process)
        return Node(process, lambda told: self._hear(site, told))

    def _arguments(self, site: Site) -> list[str]:
        """Further options of a site's nodes."""
        return []

    def _hear(self, site: Site, told: dict[str, Any]) -> None:
        if "body" in told:
            self.delivered[site].append(told["body"].partition(".")[0])
        elif told["presence"] == "missed":
            self.missed.add(site)
        elif told["presence"] == "appeared":
            self._met[site].add(told["site"])

    def _talk(self, site: Site) -> Path:
        """The file to which a site's nodes write their stderr."""
        return self._folder.with_name(f"{self._folder.name}-{site}.txt")

    def _until_together(self) -> None:
        """Every member has met every other before the first message, so that none misses one by joining."""
        others = {site: set(self.sites) - {site} for site in self.sites}
        self.until(lambda: self._met == others, "everyone to join", JOIN_S)
        self.close()

    def _until_joined(self, site: Site) -> None:
        """A node prints its first line when it meets another; a message of its own would do as well."""
        node = self._nodes[site]
        self.gone.discard(site)
        self.until(node.joined.is_set, f"{site} to join", JOIN_S)

    def _small_disk(self, size: int) -> int:
        """A mount namespace in which the trace's folder is a disk of this size; answers its holder's id."""
        mount = f"mount -t tmpfs -o size={size} none {self._folder}"
        return hold(self._stack, "--mount", preparation=mount).pid


def resident_bytes(process: int) -> int:
    """What a process occupies in memory."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError(f"/proc says nothing about the memory of {process}")
