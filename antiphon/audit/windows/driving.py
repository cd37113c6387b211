"""A whole run judged in windows: the order of the passes, whatever carries them out.

A runner holds each window's rows and applies a pass to the windows named. `LocalRunner` does so in this
process, with the rows in files; the Spark job has its own.
"""

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import numpy as np

from antiphon.audit.judging import Judgement
from antiphon.audit.windows import flowing, passes
from antiphon.audit.windows.flowing import Cause, Early
from antiphon.audit.windows.gluing import Flow, Fragment, Interval, Stretches, flow_intervals
from antiphon.audit.windows.ordering import Reach, Spanned, placed_arc
from antiphon.audit.windows.pairs import Both, Shared
from antiphon.audit.windows.passes import Found, Summary, find_message
from antiphon.audit.windows.routing import Chunk
from antiphon.audit.windows.spells import Bounds, Spell, joined
from antiphon.audit.windows.telling import early, entangled
from antiphon.audit.windows.window import Context, Window
from antiphon.check import explain
from antiphon.check.graphs import shortest_cycle
from antiphon.check.pairwise import differing
from antiphon.check.verdict import Violation
from antiphon.core.ids import MessageId, Site
from antiphon.core.recording import PROPERTIES, Property

Array = Any
Arguments = Mapping[int, tuple[Any, ...]]

EXPLAINED: Final = 1000
"""A shortest cycle is looked for in knots that span windows up to this size. Raising it costs time."""
REGION: Final = 4_000_000
"""Messages that are brought together to find a chain of causes. Raising it costs memory."""


class Runner(Protocol):
    """Holds the rows of each window, and applies passes to them."""

    context: Context

    def summaries(self) -> Iterator[tuple[int, Summary]]:
        """The first pass over every window that has rows."""

    def apply(self, name: str, arguments: Arguments) -> Iterator[tuple[int, Any]]:
        """A further pass, by its name in `passes`, over the windows that have arguments."""

    def chunks(self, windows: Iterable[int]) -> list[Chunk]:
        """The rows of some windows."""


class LocalRunner:
    """Keeps each window's rows in a file, and judges one window after another."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._folder = Path(tempfile.mkdtemp(prefix="antiphon-windows-"))
        self._windows: set[int] = set()

    def __enter__(self) -> "LocalRunner":
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, window: int, chunk: Chunk) -> None:
        self._windows.add(window)
        data = msgspec.msgpack.encode(chunk)
        with (self._folder / str(window)).open("ab") as file:
            file.write(len(data).to_bytes(8, "little") + data)

    def chunks(self, windows: Iterable[int]) -> list[Chunk]:
        return [chunk for window in windows if window in self._windows for chunk in self._read(window)]

    def _read(self, window: int) -> Iterator[Chunk]:
        with (self._folder / str(window)).open("rb") as file:
            while size := file.read(8):
                yield msgspec.msgpack.decode(file.read(int.from_bytes(size, "little")), type=Chunk)

    def summaries(self) -> Iterator[tuple[int, Summary]]:
        for window in sorted(self._windows):
            yield window, passes.summarize(Window(self.context, self.chunks([window])))

    def apply(self, name: str, arguments: Arguments) -> Iterator[tuple[int, Any]]:
        for window, given in arguments.items():
            yield window, getattr(passes, name)(Window(self.context, self.chunks([window])), *given)


JUDGED_IN_WINDOWS: Final[frozenset[Property]] = frozenset((*PROPERTIES, "pairwise", "causal-receipt", "safe"))
"""Properties that the passes look for; a run that is to be judged by others is judged as a whole."""


class Driver:
    """Judges a run with a runner that holds its rows."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.context = runner.context
        self.limits = self.context.limits
        assert JUDGED_IN_WINDOWS.issuperset(self.limits), "what no pass looks for would count as kept"
        self.sites = self.context.cuts.sites
        self.found: dict[Property, tuple[int, list[Violation]]] = {}

    def judge(self) -> Judgement:
        """All passes, in turn."""
        self.summaries = dict(sorted(self.runner.summaries(), key=lambda found: found[0]))
        for summary in self.summaries.values():
            for name, found in summary.settled.items():
                self._add(name, found)
        self._judge_flows()
        self.stretches = Stretches(self.summaries)
        if "total" in self.limits or "atomicity" in self.limits:
            self._judge_total()
        if "atomicity" in self.limits:
            self._judge_spells()
        if "pairwise" in self.limits:
            self._add("pairwise", self._pairwise())
        counts = {name: self.found.get(name, passes.NONE)[0] for name in self.limits}
        return Judgement(counts, [item for name in self.limits for item in self.found.get(name, (0, []))[1]])

    @property
    def sends(self) -> int:
        """The messages sent in the run that was judged."""
        return sum(summary.sends for summary in self.summaries.values())

    def _add(self, name: Property, found: Found) -> None:
        count, explained = self.found.get(name, passes.NONE)
        together = [*explained, *found[1]]
        self.found[name] = count + found[0], together[: self.limits.get(name, 0)]

    def _stands(self, name: Property, interwoven: Iterable[Interval]) -> None:
        """Take over the windows' own results, but for those in an interval."""
        redone = {window for interval in interwoven for window in interval}
        for window, summary in self.summaries.items():
            if window not in redone and name in summary.alone:
                self._add(name, summary.alone[name])

    # Causal order, stability and safe delivery

    def _judge_flows(self) -> None:
        interwoven = flow_intervals(self.summaries, len(self.sites))
        causal = [name for name in passes.CAUSAL if name in self.limits]
        declaring = passes.declaring(self.context)
        for name in (*causal, *declaring):
            self._stands(name, interwoven)
        for interval in interwoven:
            flow = Flow(self.summaries, interval, len(self.sites))
            for name in causal:
                self._judge_causal(name, interval, flow)
            if not declaring:
                continue
            entering = flow.entering(flow.gathered(lambda window: self.summaries[window].received))
            for name in declaring:
                arguments = {window: (name, flow.of(entering, window)) for window in flow.windows}
                for _, found in self.runner.apply("judge_declared", arguments):
                    self._add(name, found)

    def _judge_causal(self, name: Property, interval: Interval, flow: Flow) -> None:
        entering = flow.entering(flow.gathered(lambda window: self.summaries[window].causal[name][0]))
        after = flow.after(flow.gathered(lambda window: self.summaries[window].causal[name][1]))
        arguments = {
            window: (name, flow.of(entering, window), flow.of(after, window)) for window in flow.windows
        }
        records: list[Early] = []
        count = 0
        for _, (number, found) in self.runner.apply("judge_causal", arguments):
            count += number
            records += found
        limit, told = self.limits[name], len(self.found.get(name, passes.NONE)[1])
        records = records if limit is None else records[: max(limit - told, 0)]
        self._add(name, (count, self._explained(name, records, interval)))

    def _explained(self, name: Property, records: list[Early], interval: Interval) -> list[Violation]:
        """Look for the cause of each, and for a chain that leads from it."""
        if not records:
            return []
        causes: list[Cause | None] = [None] * len(records)
        arguments = {window: (name, records) for window in interval if window in self.summaries}
        for _, found in self.runner.apply("find_causes", arguments):
            for index, cause in enumerate(found):
                known = causes[index]
                if cause is not None and (known is None or cause.position < known.position):
                    causes[index] = cause
        asked = [(record, cause) for record, cause in zip(records, causes, strict=True) if cause is not None]
        assert len(asked) == len(records), "a message of the past is delivered later"
        chains = self._direct(name, asked)
        indirect = [index for index, chain in enumerate(chains) if not chain]
        longer = self._indirect(name, [asked[each] for each in indirect], interval)
        for index, chain in zip(indirect, longer, strict=True):
            chains[index] = chain
        run = self.context.run.run
        return [
            early(name, run, record.site, (record.message, record.step), (cause.message, cause.step), chain)
            for (record, cause), chain in zip(asked, chains, strict=True)
        ]

    def _direct(self, name: Property, asked: list[tuple[Early, Cause]]) -> list[list[explain.Link]]:
        """Chains of one link; empty where there is none."""
        by_window: dict[int, list[int]] = {}
        for index, (_, cause) in enumerate(asked):
            by_window.setdefault(self._window_of(cause.message), []).append(index)
        chains: list[list[explain.Link]] = [[] for _ in asked]
        arguments = {window: (name, [asked[each] for each in own]) for window, own in by_window.items()}
        for window, links in self.runner.apply("find_links", arguments):
            for index, link in zip(by_window[window], links, strict=True):
                chains[index] = [] if link is None else [link]
        return chains

    def _indirect(
        self, name: Property, asked: list[tuple[Early, Cause]], interval: Interval
    ) -> list[list[explain.Link]]:
        """Longer chains, found in the interval's rows as a whole; empty if those are too many."""
        size = sum(self.summaries[window].entries for window in interval if window in self.summaries)
        if not asked or size > REGION:
            return [[] for _ in asked]
        region = Window(self.context, self.runner.chunks(interval))
        return [
            flowing.chain(
                region, name, find_message(region, cause.message), find_message(region, record.message)
            )
            for record, cause in asked
        ]

    # Total order

    def _judge_total(self) -> None:
        interwoven = self.stretches.intervals()
        self._stands("total", interwoven)
        for interval in interwoven:
            self._judge_interwoven(interval)

    def _judge_interwoven(self, interval: Interval) -> None:
        windows = [window for window in interval if window in self.summaries]
        reaches = {
            window: reach
            for window, (reach, _) in self.runner.apply("reach", {window: ([],) for window in windows})
        }
        knots = self.stretches.knots(interval, reaches, self.sites)
        entered = [self.stretches.entered(knot) for knot in knots]
        nothing = np.empty(0, np.int64), np.empty(0, np.int64)
        arguments = {
            window: ([by_window.get(window, nothing) for by_window in entered], EXPLAINED)
            for window in windows
        }
        parts: list[dict[int, Spanned]] = [{} for _ in knots]
        for window, (spanned, count, own) in self.runner.apply("split", arguments):
            self._add("total", (count, own))
            for knot, part in enumerate(spanned):
                if part is not None:
                    parts[knot][window] = part
        for part_by_window in parts:
            self._add("total", (1, [self._knot(part_by_window)]))

    def _knot(self, parts: dict[int, Spanned]) -> Violation:
        """A knot that spans windows, with a shortest cycle unless it is large."""
        size = sum(part.size for part in parts.values())
        least = min(part.least for part in parts.values())
        links = [self._link(window, at) for window, part in parts.items() for at in part.leaving.tolist()]
        if size > EXPLAINED:
            backward = min(links, key=lambda placed: placed[:2])[2]
            return entangled(self.context.run.run, [backward], least, size, closed=False)
        graph: dict[MessageId, dict[MessageId, explain.Arc]] = {}
        arcs = [*links, *(arc for part in parts.values() for arc in part.arcs)]
        for _, _, arc in sorted(arcs, key=lambda placed: placed[:2]):
            graph.setdefault(arc.first, {}).setdefault(arc.second, arc)
            graph.setdefault(arc.second, {})
        cycle = shortest_cycle(graph, sorted(graph))
        chosen = [graph[one][other] for one, other in pairwise([*cycle, cycle[0]])]
        return entangled(self.context.run.run, chosen, least, size, closed=True)

    def _link(self, window: int, at: int) -> tuple[Site, int, explain.Arc]:
        """The arc from a stretch's last delivery to the next stretch of its site."""
        node = self.stretches.index[Fragment(window, at)]
        stretch = self.stretches.stretches[node]
        following = self.stretches.stretches[self.stretches.following[node]]
        return placed_arc(stretch.site, stretch.last, following.first)

    # Spells of presence

    def _judge_spells(self) -> None:
        absences = self.context.cuts.absences
        whole = joined(
            spell
            for summary in self.summaries.values()
            for spell in summary.spells
            if len(absences.get(spell.site, ()))
        )
        if not whole:
            return
        ordered = self.context.in_order and not self.found.get("total", passes.NONE)[0]
        bounds: dict[tuple[Site, int], Bounds] = self._bounds(whole) if ordered else {}
        given = [(spell, bounds.get(key)) for key, spell in whole.items()]
        for _, found in self.runner.apply("lacking", dict.fromkeys(self.summaries, (given,))):
            self._add("atomicity", found)

    def _bounds(self, whole: dict[tuple[Site, int], Spell]) -> dict[tuple[Site, int], Bounds]:
        """Between which deliveries a path from each spell's first to its last may run."""
        arguments = {
            window: ([self._wanted(window, key, spell) for key, spell in whole.items()],)
            for window in self.summaries
        }
        reaches: dict[int, Reach] = {}
        ends: dict[tuple[Site, int], tuple[Array, Array]] = dict.fromkeys(whole, (None, None))
        for window, (reach, found) in self.runner.apply("reach", arguments):
            reaches[window] = reach
            for key, vectors in found.items():
                after, before = (
                    old if new is None else new for new, old in zip(vectors, ends[key], strict=True)
                )
                ends[key] = after, before
        return {key: self.stretches.bounds(both, reaches, self.sites) for key, both in ends.items()}

    def _wanted(
        self, window: int, key: tuple[Site, int], spell: Spell
    ) -> tuple[Site, int, MessageId | None, MessageId | None]:
        first, last = (self._window_of(end.message) for end in (spell.first, spell.last))
        return (
            *key,
            spell.first.message if first == window else None,
            spell.last.message if last == window else None,
        )

    def _window_of(self, message: MessageId) -> int:
        cuts = self.context.cuts
        row = cuts.thresholds[cuts.senders.index(message.sender)]
        return int(np.searchsorted(row, message.number))

    # Pairwise order

    def _pairwise(self) -> Found:
        """One violation for each pair of sites that differ."""
        by_pair: dict[tuple[int, int], list[Shared]] = {}
        for summary in self.summaries.values():
            for shared in summary.pairs:
                by_pair.setdefault((shared.site, shared.other), []).append(shared)
        found = []
        for (site, other), stretches in sorted(by_pair.items()):
            both = _first_difference(sorted(stretches, key=lambda shared: shared.first[0].place))
            if both is not None:
                found.append(self._differing(self.sites[site], self.sites[other], *both))
        return len(found), found

    def _differing(self, site: Site, other: Site, one: Both, two: Both) -> Violation:
        arc = explain.Arc(site, one[0].message, one[0].step, two[0].message, two[0].step)
        against = explain.Arc(other, two[1].message, two[1].step, one[1].message, one[1].step)
        return differing(self.context.run.run, arc, against)


def _first_difference(stretches: list[Shared]) -> tuple[Both, Both] | None:
    before: Both | None = None
    for shared in stretches:
        if before is not None and before[1].place > shared.first[1].place:
            return before, shared.first
        if shared.differing is not None:
            return shared.differing
        before = shared.last
    return None
