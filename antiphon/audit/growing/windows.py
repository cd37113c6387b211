"""The windows of a growing run, judged from the store: a `windows.driving.Runner`."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.audit.growing.store import Store
from antiphon.audit.windows import passes
from antiphon.audit.windows.driving import Arguments
from antiphon.audit.windows.passes import NONE, Summary
from antiphon.audit.windows.routing import Chunk
from antiphon.audit.windows.window import Context, Window
from antiphon.core.ids import Site

Mapper = Callable[[Callable[[bytes], bytes], Sequence[bytes]], list[bytes]]
"""Applies a function to each of some inputs, in tasks or here."""
BUNDLE: Final = 32
"""Windows judged at once. Raising it costs memory, lowering it time: each bundle is a job."""


def in_process(function: Callable[[bytes], bytes], items: Sequence[bytes]) -> list[bytes]:
    """A mapper without tasks."""
    return [function(item) for item in items]


class Circumstances(NamedTuple):
    """What a summary depends on beside the window's rows."""

    facts: bytes
    absent: frozenset[Site]


class StoredWindows:
    """Holds the rows of a run's windows, and applies passes to them. Summaries are kept in the store."""

    def __init__(
        self, store: Store, context: Context, mapper: Mapper = in_process, wanted: Iterable[int] | None = None
    ) -> None:
        self.context = context
        self._store = store
        self._mapper = mapper
        self._run = context.run.run
        self._wanted = wanted
        self._light = _light(context)
        cuts = context.cuts
        self._circumstances = Circumstances(
            msgspec.json.encode(
                (
                    context.run,
                    cuts.sites,
                    cuts.declares,
                    cuts.evidence,
                    context.limits,
                    sorted(context.lagging),
                )
            ),
            frozenset(site for site, steps in cuts.absences.items() if len(steps)),
        )

    def summaries(self) -> Iterator[tuple[int, Summary]]:
        """Those that stand, and fresh ones of all other windows."""
        windows = self._store.windows(self._run) if self._wanted is None else self._wanted
        stale: list[int] = []
        for window in windows:
            known = self._store.summary(self._run, window)
            if known is not None and self._stands(*known):
                yield window, known[1]
            else:
                stale.append(window)
        for begin in range(0, len(stale), BUNDLE):
            some = stale[begin : begin + BUNDLE]
            for window, summary in self._mapped("summarize", dict.fromkeys(some, ())):
                self._store.save_summary(self._run, window, self._circumstances, summary)
                yield window, summary

    def _stands(self, made: Circumstances, summary: Summary) -> bool:
        """Whether a summary would come out the same now.

        An absence takes away what a site lacks and, for causal order by receipt, what it only received: where
        neither matters, nothing changes.
        """
        now = self._circumstances
        if made == now:
            return True
        found = (summary.settled.get("atomicity"), summary.alone.get("stability"), summary.alone.get("safe"))
        lacking = any((each or NONE)[0] for each in found)
        is_same = made.absent == now.absent or (not lacking and "causal-receipt" not in summary.alone)
        return made.facts == now.facts and made.absent <= now.absent and is_same

    def apply(self, name: str, arguments: Arguments) -> Iterator[tuple[int, Any]]:
        windows = list(arguments)
        for begin in range(0, len(windows), BUNDLE):
            yield from self._mapped(
                name, {window: arguments[window] for window in windows[begin : begin + BUNDLE]}
            )

    def chunks(self, windows: Iterable[int]) -> list[Chunk]:
        return [_chunk(data) for window in windows for data in self._store.chunks(self._run, window)]

    def _mapped(self, name: str, arguments: Arguments) -> Iterator[tuple[int, Any]]:
        context = self._light

        def judged(item: bytes) -> bytes:
            given, chunks = pickle.loads(item)
            window = Window(context, [_chunk(data) for data in chunks])
            return pickle.dumps(getattr(passes, name)(window, *given))

        items = [
            pickle.dumps((given, self._store.chunks(self._run, window)))
            for window, given in arguments.items()
        ]
        answers = self._mapper(judged, items)
        yield from zip(arguments, map(pickle.loads, answers), strict=True)


def _light(context: Context) -> Context:
    """What the tasks must know: they do not look at the cuts themselves."""
    return context._replace(cuts=context.cuts._replace(thresholds=context.cuts.thresholds[:, :0]))


def _chunk(data: bytes) -> Chunk:
    return msgspec.msgpack.decode(data, type=Chunk)
