"""PySyncObj, as installed or tuned as well as we know how: one process of a replicated map.

It is a program of its own: it reads commands on stdin and answers on stdout, as `bench/replicated.py` tells.
PySyncObj is installed into a folder of its own on first use, so that it is no dependency of ours.

Tuned: `appendEntriesUseBatch=False` and an append period of 10 ms.
"""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

VERSION: Final = "0.3.17"
QUANTILES: Final = 500
FOLDER: Final = Path(__file__).parent.parent.parent / "out" / "rivals" / "pysyncobj"
TUNING: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "tuned": {"appendEntriesUseBatch": False, "appendEntriesPeriod": 0.01},
}


class UnavailableError(Exception):
    """PySyncObj cannot be had here; the sentence says why."""


def require() -> Path:
    """The folder with PySyncObj; it is installed there on first use."""
    if not (FOLDER / "pysyncobj").exists():
        version = f"pysyncobj=={VERSION}"
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(FOLDER), version]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UnavailableError(f"pip cannot install PySyncObj {VERSION}: {done.stderr.strip()[-200:]}")
    return FOLDER


def serve(tuning: str, own: str, others: list[str]) -> None:
    """One member: answer the commands on stdin."""
    sys.path.insert(0, str(require()))
    import pysyncobj  # type: ignore[import-not-found]

    class Store(pysyncobj.SyncObj):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(own, others, pysyncobj.SyncObjConf(**TUNING[tuning]))
            self.values: dict[str, Any] = {}

        @pysyncobj.replicated  # type: ignore[untyped-decorator]
        def put(self, key: str, value: Any) -> None:
            self.values[key] = value

    store = Store()
    store.waitReady()
    answer({"ready": True})
    for line in sys.stdin:
        command = json.loads(line)
        match command["do"]:
            case "load":
                answer(load(store, command["outstanding"], command["seconds"]))
            case "leader":
                leader = store.getStatus()["leader"]
                answer({"leader": None if leader is None else str(leader)})
            case "first":
                answer(first(store))


def load(store: Any, outstanding: int, seconds: float) -> dict[str, Any]:
    """Keep that many sets under way."""
    end_s = time.monotonic() + seconds
    latencies: list[float] = []
    idle = threading.Semaphore(0)

    def go(number: int) -> None:
        begun_s = time.monotonic()

        def done(_result: Any, error: Any) -> None:
            now_s = time.monotonic()
            if not error:
                latencies.append(now_s - begun_s)
            if now_s < end_s:
                go(number)
            else:
                idle.release()

        store.put(f"k{number}", number, callback=done)

    for number in range(outstanding):
        go(number)
    for _ in range(outstanding):
        idle.acquire(timeout=seconds + 10)
    return summary(latencies)


def summary(latencies: list[float]) -> dict[str, Any]:
    """The count, and evenly spaced quantiles that fit a pipe: its reader may be busy elsewhere."""
    ordered = sorted(latencies)
    step = max(1, len(ordered) // QUANTILES)
    return {"count": len(ordered), "latencies": [round(each, 6) for each in ordered[step // 2 :: step]]}


def first(store: Any) -> dict[str, Any]:
    """Call until a call succeeds; when that was, on the clock that all processes share."""
    while True:
        done = threading.Event()
        found: list[Any] = []

        def answered(_result: Any, error: Any, found: Any = found, done: Any = done) -> None:
            found.append(error)
            done.set()

        store.put("first", 1, callback=answered)
        if done.wait(0.2) and not found[0]:
            return {"time_s": time.monotonic()}


def answer(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], sys.argv[3:])
