"""Output of the command line: data on stdout, messages on stderr, errors as a sentence and a hint."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from antiphon.report.escape import clean
from antiphon.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

talk = Console(stderr=True, highlight=False, soft_wrap=True)
data = Console(highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """One JSON object on a line of its own, flushed, so that a reader downstream sees it at once."""
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")
    sys.stdout.flush()


def say(sentence: str, style: str | None = None) -> None:
    """One message on stderr. Names in it may be a peer's or a file's: their control characters are
    escaped."""
    talk.print(clean(sentence), markup=False, style=style)


def print_error(sentence: str, hint: str | None = None) -> None:
    talk.print("[bold red]error:[/] ", end="")
    say(sentence)
    if hint:
        talk.print("[bold cyan]hint:[/] ", end="")
        say(hint)


def one_word(name: str) -> str:
    """A name without control characters and spaces: it cannot end its field or its line.

    >>> one_word("eve 7\n")
    'eve\\u00207\\u000a'
    """
    if name.isprintable() and " " not in name:
        return name
    return "".join(f"\\u{ord(each):04x}" if each.isspace() else clean(each) for each in name)


def shown_body(body: bytes) -> str:
    """A message's body for a terminal: one line, tabs kept, everything else unprintable escaped."""
    return "\t".join(map(clean, body.decode(errors="backslashreplace").split("\t")))


def print_text(text: str) -> None:
    """A line of data, flushed. It may be a peer's: on a terminal, what cannot be printed is escaped; into a
    pipe or a file it goes as it is."""
    sys.stdout.write((shown_body(text.encode()) if sys.stdout.isatty() else text) + "\n")
    sys.stdout.flush()


class Bar:
    """A progress bar that counts runs and weighs them by their work."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self.done = 0
        self._progress = progress
        self._task = task

    def __call__(self, done: int, share: float) -> None:
        self.done = done
        self._progress.update(self._task, completed=share, done=done)


@contextmanager
def run_bar(label: str, runs: int) -> Iterator[Bar]:
    """A bar over runs; the time left goes by their expected cost. Silent when stderr is not a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]}/{task.fields[runs]} runs"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=talk, disable=not talk.is_terminal, transient=True) as progress:
        yield Bar(progress, progress.add_task(label, total=1.0, done=0, runs=runs))


@contextmanager
def status(sentence: str) -> Iterator[None]:
    """Show what is going on while it lasts: a spinner on a terminal, one line elsewhere."""
    if talk.is_terminal:
        with talk.status(sentence):
            yield
    else:
        say(sentence)
        yield


@contextmanager
def starting_spark(master: str) -> Iterator["SparkSession"]:
    """A Spark session, with a note about the seconds that it takes to start."""
    session = spark_session(master)
    with status("Starting Spark ..."):
        spark = session.__enter__()
    try:
        yield spark
    finally:
        session.__exit__(None, None, None)


class Sparkline:
    """A rate over time, drawn live: a bar for each step, the highest full, and a digit below each."""

    LEVELS: Final = " ▁▂▃▄▅▆▇█"
    WIDTH: Final = 60

    def __init__(self, label: str, below: str, step_s: float = 0.1) -> None:
        self._labels = (label, below.ljust(len(label)))
        self._step_s = step_s
        self._last: int | None = None
        self._steps: list[tuple[float, int]] = []
        self._live = Live(console=talk, auto_refresh=False, transient=True)

    def __enter__(self) -> "Sparkline":
        if talk.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        talk.print(self.text(), markup=False)

    def add(self, total: int, there: int) -> None:
        """Add a growing count, whose increase is the rate, and a number below ten."""
        if self._last is not None:
            self._steps.append(((total - self._last) / self._step_s, there))
            self._steps = self._steps[-self.WIDTH :]
        self._last = total
        if talk.is_terminal:
            self._live.update(Text(self.text()), refresh=True)

    def text(self) -> str:
        highest = max((rate for rate, _ in self._steps), default=0.0)
        scale = (len(self.LEVELS) - 1) / highest if highest else 0.0
        bars = "".join(self.LEVELS[round(scale * rate)] for rate, _ in self._steps)
        digits = "".join(str(there % 10) for _, there in self._steps)
        return f"{self._labels[0]} {bars} up to {highest:,.0f}\n{self._labels[1]} {digits}"
