"""A Spark session that starts quickly, prints nothing and leaves nothing behind.

One session serves a whole process: start-up takes seconds, a further query half a second. So `spark_session`
joins a running session and leaves it running; the caller that started the session stops it. `local[*]` is the
embedded default; any other master gets this package sent along, so that its workers need only Python, numpy,
numba, msgspec and pyarrow.
"""

import importlib
import importlib.util
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import antiphon
from antiphon.core.errors import UsageError
from antiphon.core.extras import require_extra
from antiphon.core.memory import memory_bytes
from antiphon.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MASTER: Final = re.compile(r"local(\[(\*|\d+)(, *\d+)?\])?|local-cluster\[.+\]|(spark|k8s)://.+|yarn")
LEAST_DRIVER_MEGABYTES: Final = 1024
MOST_DRIVER_MEGABYTES: Final = 16 * 1024
ARROW_BATCH_ROWS: Final = 10_000
ARROW_BATCH_BYTES: Final = 32 * 1024 * 1024
"""A batch to or from Python ends at either bound. Raising them costs memory in the worker."""


@contextmanager
def spark_session(
    master: str = "local[*]", app_name: str = "antiphon", settings: Mapping[str, str] | None = None
) -> Iterator["SparkSession"]:
    """A Spark session, stopped at the end unless it was running before."""
    require_extra("spark", "Spark jobs need")
    if not MASTER.fullmatch(master):
        raise UsageError(
            f"{master!r} is no Spark master.",
            hint="It is local[*], local[4] or the address of a cluster such as spark://host:7077.",
        )
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    folder = Path(tempfile.mkdtemp(prefix="antiphon-spark-"))
    try:
        with _interrupts_held() as held, gateway_kept_quiet():
            spark = _start(master, app_name, folder, settings or {})
            try:
                if held:
                    raise KeyboardInterrupt
                yield spark
            finally:
                _stop(spark)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _interrupts_held() -> Iterator[list[int]]:
    """Hold interrupts until Spark handles them itself, and restore the handler at the end.

    An interrupt while Java is starting would leave an orphaned process. Once started, Spark cancels its jobs
    on an interrupt; after it has stopped, that would fail.
    """
    held: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield held  # only the main thread is interrupted
        return
    before = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def gateway_kept_quiet() -> Iterator[None]:
    """Keep Py4J's own tracebacks from the log: if Java ends in the middle of a call, our error says so."""
    root = logging.getLogger()
    root.addFilter(_is_no_gateways)
    try:
        yield
    finally:
        root.removeFilter(_is_no_gateways)


def _is_no_gateways(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


def _start(master: str, app_name: str, folder: Path, settings: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(app_name)
    chosen = {"spark.master": master, "spark.app.name": app_name, **_settings(master, folder), **settings}
    for key, value in chosen.items():
        builder = builder.config(key, value)
    try:
        with _environment(_launch_environment(master)):
            _launch_java(chosen)
            spark: SparkSession = builder.getOrCreate()
    except Exception as error:
        raise UsageError(
            f"Spark did not start with the master {master!r}: {_first_line(error)}",
            hint="Use --master 'local[*]', or see what Spark says with ANTIPHON_SPARK_LOG=warn.",
        ) from error
    if not master.startswith("local"):
        spark.sparkContext.addPyFile(str(package_archive(folder)))
    # PySpark's server for accumulators prints a traceback where Java ends; our own error says what happened.
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None
    return spark


def _launch_java(settings: Mapping[str, str]) -> None:
    """Start Spark's Java process in a session of its own, unless there is one.

    A signal to the process group of a command, such as that of `timeout`, then leaves it running until the
    command has ended. It ends with the process that started it in any case, by the pipe between them.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        gateway = launch_gateway(conf, popen_kwargs={"start_new_session": True})
        SparkContext._ensure_initialized(gateway=gateway)


def _stop(spark: "SparkSession") -> None:
    """Stop a session. If its Java process has ended, there is nothing left to stop."""
    java = getattr(spark.sparkContext._gateway, "proc", None)
    try:
        spark.stop()
    except Exception:
        if java is None or java.poll() is None:
            raise


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _settings(master: str, folder: Path) -> dict[str, str]:
    log_settings = Path(__file__).with_name("log4j2.properties").as_uri()
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_settings}",
        "spark.driver.memory": f"{driver_megabytes()}m",
        "spark.driver.maxResultSize": "0",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_BATCH_ROWS),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BATCH_BYTES),
        "spark.python.worker.reuse": "true",
        "spark.task.maxFailures": "1" if master.startswith("local") else "4",
        # Few partitions, merged further where they come out small: a task costs 30 to 60 ms of processor.
        "spark.sql.shuffle.partitions": "64",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "true",
        "spark.sql.adaptive.coalescePartitions.minPartitionSize": "64k",
    }
    if master.startswith("local"):
        # An embedded Spark listens on the loopback only, and does not depend on the machine's name.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings


def _launch_environment(master: str) -> dict[str, str]:
    environment = {"JAVA_HOME": str(java_home()), "PYSPARK_DRIVER_PYTHON": sys.executable}
    if master.startswith("local"):
        environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    elif "PYSPARK_PYTHON" not in os.environ:
        environment["PYSPARK_PYTHON"] = sys.executable
    return environment


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = {key: os.environ.get(key) for key in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def map_in_arrow(
    frame: "DataFrame", function: Callable[[Iterator[Any]], Iterator[Any]], schema: str
) -> "DataFrame":
    """`DataFrame.mapInArrow`: a partition's record batches in, record batches out.

    PySpark's own method requires pandas, although Arrow batches do not use it. Spark Connect needs pandas in
    any case. In other sessions this is that method's body without the requirement.
    """
    from pyspark.sql import DataFrame

    if type(frame).__module__.startswith("pyspark.sql.connect"):
        return frame.mapInArrow(function, schema)
    from pyspark.util import PythonEvalType

    # PySpark's type stub does not list this function, so it is fetched by name.
    functions: Any = importlib.import_module("pyspark.sql.pandas.functions")
    wrapped = functions.vectorized_udf(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = wrapped(*[frame[name] for name in frame.columns])
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def driver_megabytes() -> int:
    """A quarter of the memory that this process may use, within bounds."""
    quarter = memory_bytes() // 4 // 1024 // 1024
    return min(max(quarter, LEAST_DRIVER_MEGABYTES), MOST_DRIVER_MEGABYTES)


def package_archive(folder: Path) -> Path:
    """This package as a zip file, to be sent to the workers of a cluster."""
    archive = folder / "antiphon.zip"
    root = Path(antiphon.__file__).parent
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(root.rglob("*")):
            if path.suffix in {".py", ".properties", ".md"}:
                file.write(path, Path("antiphon") / path.relative_to(root))
    return archive
