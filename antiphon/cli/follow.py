"""`antiphon audit --follow DIR`: judge a trace while its group runs."""

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from antiphon.audit.result import AuditResult
from antiphon.audit.runs import checked_request
from antiphon.audit.violations import empty_folder
from antiphon.check.verdict import Violation
from antiphon.cli.console import data, print_json, say, starting_spark, status
from antiphon.core.errors import InputError, OutputError
from antiphon.core.extras import lacking, require_extra
from antiphon.core.recording import Property
from antiphon.report.escape import clean

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from antiphon.spark.follow import Follower

POLL_S: Final = 0.5
REPEATED_S: Final = 1.0
"""A signal that follows the first within this time is the same one again."""
LEAST_SHOWN: Final = 20
"""Violations of each property that are explained for each batch, at least."""


class FollowRequest(NamedTuple):
    """What the caller asks for."""

    folder: Path
    expect: Sequence[Property] | None
    only: Sequence[Property] | None
    show: int
    violations: str | None
    state: Path | None
    until_idle_s: float | None
    port: int | None
    json: bool


def follow(request: FollowRequest, master: str) -> AuditResult:
    """Tell violations as they are found, until the trace is idle or a signal comes; then the result."""
    require_extra("spark", "'antiphon audit --follow' needs")
    from antiphon.spark.tasks import is_gone

    try:
        return _follow(request, master)
    except Exception as error:
        if not is_gone(error):
            raise
    raise InputError(
        "Spark's Java process ended before the verdict.",
        "Start it again. With --state the same command goes on from there.",
    )


def _follow(request: FollowRequest, master: str) -> AuditResult:
    from antiphon.spark.follow import Follower

    if not request.folder.is_dir():
        what = "is no folder" if request.folder.exists() else "does not exist"
        raise InputError(f"{request.folder} {what}.", "--follow takes the folder of a trace. Make it first.")
    asked = checked_request(
        [str(request.folder)], request.expect, request.only, max(request.show, LEAST_SHOWN)
    )
    if request.violations is not None:
        asked = asked._replace(violations_to=empty_folder(Path(request.violations)))
    with (
        starting_spark(master) as spark,
        _until_signalled() as stop,
        Follower(spark, request.folder, asked, state=request.state) as follower,
        _served(follower, request.port),
    ):
        say(f"Following {request.folder}. Ctrl-C ends with the verdict.")
        _watch(follower, request, stop)
        with status("Judging what is left ..."):
            return follower.finish()


def _watch(follower: "Follower", request: FollowRequest, stop: threading.Event) -> None:
    rows, changed = -1, time.monotonic()
    while not stop.wait(POLL_S):
        for violation in follower.poll():
            _tell(violation, json=request.json)
        if follower.rows != rows or follower.is_busy:
            rows, changed = follower.rows, time.monotonic()
        if request.until_idle_s is not None and time.monotonic() - changed >= request.until_idle_s:
            if not follower.has_unread():
                return
            changed = time.monotonic()


def _tell(violation: Violation, *, json: bool) -> None:
    if json:
        print_json({"violation": msgspec.to_builtins(violation)})
        return
    words = f"{time.strftime('%H:%M:%S')}  {violation.property}, run {violation.run}: {violation.explanation}"
    data.print(clean(words), markup=False)


@contextmanager
def _until_signalled() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set; a further signal acts as usual, unless it comes at once.

    `timeout` signals a command and then its process group, so the command gets each signal twice.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    first: list[float] = []

    def stopped(number: int, _: object) -> None:
        if not first:
            first.append(time.monotonic())
            stop.set()
        elif time.monotonic() - first[0] >= REPEATED_S:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)

    for number in before:
        signal.signal(number, stopped)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _served(follower: "Follower", port: int | None) -> Iterator[None]:
    """Serve the figures for Prometheus meanwhile, if a port is given."""
    if port is None:
        yield
        return
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ModuleNotFoundError:
        raise lacking("metrics", "Metrics need") from None
    registry = CollectorRegistry()
    registry.register(FollowCollector(follower))
    try:
        server, _ = start_http_server(port, "127.0.0.1", registry)
    except (OSError, OverflowError) as error:
        reason = str(error).rstrip(".")
        raise OutputError(
            f"Metrics cannot be served on port {port}: {reason}.", "Choose another port."
        ) from error
    try:
        say(f"Metrics are at http://127.0.0.1:{server.server_port}/metrics.")
        yield
    finally:
        server.shutdown()
        server.server_close()


class FollowCollector:
    """Reads a follower's figures at each scrape."""

    def __init__(self, follower: "Follower") -> None:
        self._follower = follower

    def collect(self) -> Iterator["Metric"]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        follower = self._follower
        text = "Seconds that the oldest rows read have waited to be judged."
        yield GaugeMetricFamily("antiphon_audit_lag_seconds", text, follower.lag_s)
        yield CounterMetricFamily("antiphon_audit_rows", "Rows taken in since the start.", follower.rows)
        text = "Micro-batches taken in since the start."
        yield CounterMetricFamily("antiphon_audit_batches", text, follower.batches)
        text = "Times that the job failed and was started again."
        yield CounterMetricFamily("antiphon_audit_restarts", text, follower.failures)
        text = "Violations found since the start, promised or not."
        found = CounterMetricFamily("antiphon_audit_violations", text, labels=["property"])
        for name, count in follower.counts.items():
            found.add_metric([name], count)
        yield found
