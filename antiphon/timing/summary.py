"""From the tables to a summary: latencies per pair, members, who is slow and since when, what cannot be told.

Latencies of a pair are corrected by the estimated offset of their clocks, and are uncertain by as much. The
sum of both directions is not: offsets cancel. So the member that is slow is named by its round trips where
messages go both ways, and by the latency of what it receives elsewhere.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final, Literal

import msgspec

from antiphon.core.errors import InputError
from antiphon.core.ids import Site
from antiphon.timing.clocks import Clocks
from antiphon.timing.tables import SCALES, SHIFTS, Measured, Source, nanoseconds_of
from antiphon.trace.arrow import pa
from antiphon.trace.schema import ACCEPTED

ClockModel = Literal["estimate", "trust"]
SLOTS: Final = 60
"""Time slots of a run. Raising it makes plots finer and needs more messages for each."""
SLOW_QUANTILE: Final = 0.9
"""The quantile of latencies by which members are compared: a spell of a tenth of the run shows. Raising it
names members for shorter spells."""
SLOW_RATIO: Final = 2.0
"""A member is slow if its latency is this multiple of the others' median. Raising it names fewer members."""
SLOW_EXCESS_MS: Final = 1.0
"""And if it is above the others' median by this. Raising it names fewer members of fast groups."""
SLOW_SHARE: Final = 0.5
"""A slow spell is where the excess over the others is at least this share of its greatest."""
MILLISECOND: Final = 1e6


class Clock(msgspec.Struct, frozen=True):
    site: Site
    offset_ms: float | None
    """How far it is ahead of the reference; None if messages do not tell."""
    uncertainty_ms: float | None


class Latency(msgspec.Struct, frozen=True):
    """From a send at `source` to an event of `kind` at `target`."""

    source: Site
    target: Site
    kind: str
    messages: int
    p50_ms: float
    p99_ms: float
    mean_ms: float
    uncertainty_ms: float | None
    """None: the clocks cannot be compared, and latencies count from the pair's fastest message."""


class Member(msgspec.Struct, frozen=True):
    site: Site
    sends: int
    deliveries: int
    per_second: float
    redelivered: int
    in_ms: float | None
    """Median latency of what it receives, or delivers if the trace has no receptions."""
    out_ms: float | None
    """Median latency of what others receive from it."""
    loop_ms: float | None
    """In and out together: offsets of clocks cancel."""
    stable_ms: float | None
    """Median time from a send to its stability here."""
    last: int
    """Messages that it was the last to deliver."""
    behind_ms: float
    """How much later than the one before, on average over those."""
    buffered_most: int | None
    """The most messages that it kept for others at the end of a time slot."""
    present_share: float | None
    absences: int


class Slow(msgspec.Struct, frozen=True):
    """A member that is slow, since when, and what that costs."""

    site: Site
    latency_ms: float
    others_ms: float
    is_round_trip: bool
    since_s: float
    until_s: float | None
    """None: to the end of the run."""
    last_share: float
    behind_ms: float
    sentence: str


class Spread(msgspec.Struct, frozen=True):
    messages: int
    p50_ms: float
    p99_ms: float


class Over(msgspec.Struct, frozen=True):
    """Values by time slot: one list for each site."""

    seconds: list[float]
    deliveries: dict[Site, list[float]]
    latency_ms: dict[Site, list[float | None]]
    buffered: dict[Site, list[int]]


class RunStats(msgspec.Struct, frozen=True):
    run: str
    seconds: float
    sites: int
    sends: int
    deliveries: int
    reference: Site | None
    clocks: list[Clock]
    latency: list[Latency]
    members: list[Member]
    skew: Spread | None
    slow: list[Slow]
    over_time: Over
    cannot_tell: list[str]


class Statistics(msgspec.Struct, frozen=True):
    """What a trace tells about speed."""

    runs: list[RunStats]


class _Levels:
    """Counts by level: quantiles and the mean."""

    def __init__(self) -> None:
        self.counts: defaultdict[int, int] = defaultdict(int)
        self.sum_ns = 0

    def add(self, level: int, count: int, sum_ns: int) -> None:
        self.counts[level] += count
        self.sum_ns += sum_ns

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def quantile_ms(self, share: float) -> float:
        wanted, seen = share * self.count, 0
        for level in sorted(self.counts):
            seen += self.counts[level]
            if seen >= wanted:
                return round(nanoseconds_of(level) / MILLISECOND, 6)
        return 0.0

    @property
    def mean_ms(self) -> float:
        return round(self.sum_ns / self.count / MILLISECOND, 6)


def statistics(source: Source, clocks: ClockModel = "estimate") -> Statistics:
    """Make a trace's statistics. `trust` takes all clocks of a run as equal."""
    overview = _by_run(source.overview())
    if not overview:
        raise InputError("The trace has no rows about messages, so there is nothing to measure.")
    nearest = _by_run(source.nearest())
    known = {
        run: _clocks_of(rows, [] if clocks == "trust" else nearest.get(run, []))
        for run, rows in overview.items()
    }
    plans = {
        run: _Plan(run, rows, nearest.get(run, []), known[run], clocks == "trust")
        for run, rows in overview.items()
    }
    scales = pa.Table.from_pylist([row for plan in plans.values() for row in plan.scales()], SCALES)
    shifts = pa.Table.from_pylist([row for plan in plans.values() for row in plan.shifts()], SHIFTS)
    measured = source.measured(scales, shifts)
    tables = {name: _by_run(getattr(measured, name)) for name in Measured.__struct_fields__}
    presences = _by_run(source.presences())
    return Statistics(
        [
            _RunSummary(
                plan, {name: table.get(run, []) for name, table in tables.items()}, presences.get(run, [])
            ).summary()
            for run, plan in sorted(plans.items())
        ]
    )


def _by_run(table: pa.Table) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        found.setdefault(row["run"], []).append(row)
    return found


def _clocks_of(overview: Sequence[Mapping[str, Any]], nearest: Iterable[Mapping[str, Any]]) -> Clocks:
    sites = {row["site"] for row in overview if row["site"] != ACCEPTED}
    least = {(row["source"], row["target"]): row["least_ns"] for row in nearest}
    return Clocks(sorted(sites), least)


class _Plan:
    """What is known of a run before latencies are counted: its clocks and its time slots."""

    def __init__(
        self, run: str, overview: list[dict[str, Any]], nearest: list[dict[str, Any]], clocks: Clocks,
        trust: bool,
    ) -> None:  # fmt: skip
        self.run, self.overview, self.nearest, self.clocks, self.trust = run, overview, nearest, clocks, trust
        ends = [
            (row[end] - self.offset_ns(row["site"]))
            for row in overview
            for end in ("first_ns", "last_ns")
            if row[end] is not None and row["site"] != ACCEPTED
        ]
        self.start_ns = min(ends, default=0)
        self.seconds = (max(ends, default=0) - self.start_ns) / 1e9
        self.width_ns = max((max(ends, default=0) - self.start_ns) // SLOTS + 1, 1)

    def offset_ns(self, site: Site) -> int:
        found = None if self.trust else self.clocks.of(site)
        return 0 if found is None else found.offset_ns

    def is_placed(self, site: Site) -> bool:
        return self.trust or self.clocks.of(site) is not None

    def scales(self) -> list[dict[str, Any]]:
        return [
            {
                "run": self.run, "site": site, "offset_ns": self.offset_ns(site),
                "start_ns": self.start_ns, "width_ns": self.width_ns, "placed": self.is_placed(site),
            }
            for site in self.clocks.sites
        ]  # fmt: skip

    def shifts(self) -> list[dict[str, Any]]:
        pairs = {(row["source"], row["target"]): row["least_ns"] for row in self.nearest}
        pairs |= {(site, site): 0 for site in self.clocks.sites}
        return [
            {"run": self.run, "source": source, "target": target, "shift_ns": self._shift(source, target, ns)}
            for (source, target), ns in sorted(pairs.items())
        ]

    def uncertainty_ms(self, source: Site, target: Site) -> float | None:
        found = None if self.trust else self.clocks.between(source, target)
        return None if found is None else round(found.uncertainty_ns / MILLISECOND, 6)

    def _shift(self, source: Site, target: Site, least_ns: int) -> int:
        if self.trust:
            return 0
        found = self.clocks.between(source, target)
        return least_ns if found is None else found.offset_ns


class _RunSummary:
    """Makes the summary of one run."""

    def __init__(
        self, plan: _Plan, tables: dict[str, list[dict[str, Any]]], presences: list[dict[str, Any]]
    ) -> None:
        self._plan, self._tables, self._presences = plan, tables, presences
        self._counts: defaultdict[Site, dict[str, dict[str, Any]]] = defaultdict(dict)
        for row in plan.overview:
            self._counts[row["site"]][row["kind"]] = row
        self._sites = list(plan.clocks.sites)
        self._pairs: dict[tuple[Site, Site, str], _Levels] = {}
        for row in tables["latency"]:
            key = (row["source"], row["target"], row["kind"])
            self._pairs.setdefault(key, _Levels()).add(row["level"], row["count"], row["sum_ns"])
        kinds = {kind for _, _, kind in self._pairs}
        self._arrival = "receive" if "receive" in kinds else "deliver"
        self._lasts = {row["site"]: row for row in tables["lasts"]}
        self._skew = _Levels()
        for row in tables["skew"]:
            self._skew.add(row["level"], row["count"], row["sum_ns"])

    def summary(self) -> RunStats:
        plan = self._plan
        over = self._over_time()
        members = [self._member(site, over) for site in self._sites]
        spread = None
        if self._skew.count:
            spread = Spread(self._skew.count, self._skew.quantile_ms(0.5), self._skew.quantile_ms(0.99))
        return RunStats(
            run=plan.run, seconds=round(plan.seconds, 9), sites=len(self._sites),
            sends=sum(member.sends for member in members),
            deliveries=sum(member.deliveries for member in members),
            reference=None if plan.trust else plan.clocks.reference,
            clocks=[] if plan.trust else [self._clock(site) for site in self._sites],
            latency=[self._latency(*key) for key in sorted(self._pairs)],
            members=members, skew=spread, slow=self._slow(members, over), over_time=over,
            cannot_tell=self._cannot_tell(),
        )  # fmt: skip

    def _clock(self, site: Site) -> Clock:
        found = self._plan.clocks.of(site)
        if found is None:
            return Clock(site, None, None)
        return Clock(
            site, round(found.offset_ns / MILLISECOND, 6), round(found.uncertainty_ns / MILLISECOND, 6)
        )

    def _latency(self, source: Site, target: Site, kind: str) -> Latency:
        levels = self._pairs[source, target, kind]
        return Latency(
            source, target, kind, levels.count, levels.quantile_ms(0.5), levels.quantile_ms(0.99),
            levels.mean_ms, self._plan.uncertainty_ms(source, target),
        )  # fmt: skip

    def _member(self, site: Site, over: Over) -> Member:
        counts = self._counts[site]
        deliveries = counts.get("deliver", {}).get("count", 0)
        last = self._lasts.get(site, {"count": 0, "margin_ns": 0})
        arriving = self._median(self._arrival, target=site)
        leaving = self._median(self._arrival, source=site)
        share, absences = self._presence(site)
        return Member(
            site=site, sends=counts.get("send", {}).get("count", 0), deliveries=deliveries,
            per_second=round(deliveries / self._plan.seconds, 3) if self._plan.seconds else 0.0,
            redelivered=counts.get("deliver", {}).get("repeats", 0),
            in_ms=arriving, out_ms=leaving, loop_ms=self._loop(site),
            stable_ms=self._median("stable", target=site),
            last=last["count"],
            behind_ms=round(last["margin_ns"] / max(last["count"], 1) / MILLISECOND, 6),
            buffered_most=max(over.buffered[site]) if site in over.buffered else None,
            present_share=share, absences=absences,
        )  # fmt: skip

    def _median(
        self, kind: str, source: Site | None = None, target: Site | None = None, share: float = 0.5
    ) -> float | None:
        """Over all pairs with this source or this target."""
        merged = _Levels()
        for (one, other, of), levels in self._pairs.items():
            wanted = (source or one, target or other, kind) == (one, other, of)
            if wanted and (one != other or kind == "stable"):
                for level, count in levels.counts.items():
                    merged.add(level, count, 0)
        return merged.quantile_ms(share) if merged.counts else None

    def _loop(self, site: Site, share: float = 0.5) -> float | None:
        """The median over peers of the medians, or of other quantiles, there and back."""
        loops = []
        for peer in self._sites:
            there = self._pairs.get((peer, site, self._arrival))
            back = self._pairs.get((site, peer, self._arrival))
            if peer != site and there and back:
                loops.append(there.quantile_ms(share) + back.quantile_ms(share))
        return round(median(loops), 6) if loops else None

    def _presence(self, site: Site) -> tuple[float | None, int]:
        """The share of the run that a site was present, and how often it was absent."""
        rows = sorted(
            (row for row in self._presences if row["site"] == site), key=lambda row: int(row["step"])
        )
        absences = sum(row["kind"] == "absent" for row in rows)
        if any(row["time_ns"] is None for row in rows) or not self._plan.seconds:
            return None, absences
        start, length = self._plan.start_ns, self._plan.seconds * 1e9
        times = [(row["kind"], row["time_ns"] - self._plan.offset_ns(site) - start) for row in rows]
        absent, since = 0.0, 0.0 if times and times[0][0] == "present" else None
        for kind, at in times:
            if kind == "present" and since is not None:
                absent, since = absent + max(at - since, 0.0), None
            elif kind == "absent" and since is None:
                since = at
        if since is not None:
            absent += max(length - since, 0.0)
        return round(min(max(1 - absent / length, 0.0), 1.0), 6), absences

    def _over_time(self) -> Over:
        width_s = self._plan.width_ns / 1e9
        seconds = [round((slot + 0.5) * width_s, 9) for slot in range(SLOTS)]
        deliveries = {site: [0.0] * SLOTS for site in self._sites}
        kept: dict[Site, dict[str, list[int]]] = {}
        for row in self._tables["activity"]:
            if 0 <= row["slot"] < SLOTS and row["site"] in deliveries:
                if row["kind"] == "deliver":
                    deliveries[row["site"]][row["slot"]] = row["count"] / width_s
                kept.setdefault(row["site"], {}).setdefault(row["kind"], [0] * SLOTS)[row["slot"]] = row[
                    "count"
                ]
        latency: dict[Site, list[float | None]] = {}
        for row in self._tables["lateness"]:
            if row["kind"] == self._arrival and 0 <= row["slot"] < SLOTS:
                values = latency.setdefault(row["target"], [None] * SLOTS)
                values[row["slot"]] = row["sum_ns"] / row["count"] / MILLISECOND
        buffered = {site: found for site in self._sites if (found := _occupancy(kept.get(site, {})))}
        return Over(seconds, deliveries, latency, buffered)

    def _slow(self, members: Sequence[Member], over: Over) -> list[Slow]:
        """Members whose latency is far above the others', worst first."""
        round_trip = sum(member.loop_ms is not None for member in members) > 2
        figures: dict[Site, float] = {}
        for site in self._sites:
            loop = self._loop(site, SLOW_QUANTILE)
            value = loop if round_trip else self._median(self._arrival, target=site, share=SLOW_QUANTILE)
            if value is not None:
                figures[site] = value
        found = []
        for member in members:
            others = [value for site, value in figures.items() if site != member.site]
            if member.site not in figures or not others:
                continue
            usual = median(others)
            if figures[member.site] > max(SLOW_RATIO * usual, usual + SLOW_EXCESS_MS):
                found.append(self._told(member, figures[member.site], usual, round_trip, over))
        return sorted(found, key=lambda each: -each.latency_ms)

    def _told(self, member: Member, value: float, usual: float, round_trip: bool, over: Over) -> Slow:
        first, end = _spell(over, member.site)
        width_s = self._plan.width_ns / 1e9
        since_s, until_s = first * width_s, None if end >= SLOTS else end * width_s
        share = member.last / self._skew.count if self._skew.count else 0.0
        what = "round trips" if round_trip else "latencies"
        cost = (
            f" It was the last to deliver {share:.0%} of the messages, on average "
            f"{member.behind_ms:.3g} ms after all others."
            if member.last
            else ""
        )
        cost += self._buffers_said(member.site, over, first, end)
        when = f"from {since_s:.3g} s" + (" to the end" if until_s is None else f" to {until_s:.3g} s")
        figures = f"nine of ten of its {what} are up to {value:.3g} ms, of the others' {usual:.3g} ms"
        sentence = f"{member.site} is slow {when}: {figures}.{cost}"
        return Slow(
            member.site, value, usual, round_trip, round(since_s, 9),
            None if until_s is None else round(until_s, 9), round(share, 6), member.behind_ms, sentence,
        )  # fmt: skip

    def _buffers_said(self, site: Site, over: Over, first: int, end: int) -> str:
        """What the others kept for retransmission meanwhile, compared with the rest of the run."""
        others = [values for name, values in over.buffered.items() if name != site]
        during = [held for values in others for held in values[first:end]]
        besides = [held for values in others for held in (*values[:first], *values[end:])]
        if not during or not besides or sum(during) * len(besides) <= sum(besides) * len(during):
            return ""
        kept = f"{sum(during) / len(during):.3g} messages each on average"
        return f" Meanwhile the others kept {kept}, {sum(besides) / len(besides):.3g} otherwise."

    def _cannot_tell(self) -> list[str]:
        """A sentence for each thing that the trace has no evidence for."""
        plan, found = self._plan, list[str]()
        kinds = {kind for counts in self._counts.values() for kind in counts}
        timed = {row["kind"] for row in plan.overview if row["timed"]}
        if not timed:
            return ["No row has a time, so nothing can be said about speed."]
        if "send" not in timed:
            found.append("No send has a time, so latencies cannot be told.")
        if "deliver" not in timed:
            found.append("No delivery has a time, so neither its latency nor its skew can be told.")
        if plan.clocks.unsteady and not plan.trust:
            names = ", ".join(plan.clocks.unsteady[:6])
            found.append(f"The clocks of {names} were set or ran unevenly: they cannot be compared.")
        apart = [site for site in self._sites if not plan.is_placed(site)]
        if apart and not plan.clocks.unsteady and {"send", "deliver"} <= timed:
            found.append(
                f"Messages do not go both ways between {plan.clocks.reference} and {', '.join(apart[:6])}, "
                "so their clocks cannot be compared, and latencies count from each pair's fastest message: "
                "--clocks trust takes the clocks as equal."
            )
        if "receive" not in kinds:
            found.append("No row is a reception: latencies are those of deliveries.")
        if not kinds & {"stable", "discard"}:
            found.append("No row says when a message is stable: stability and buffers cannot be told.")
        if not any(row["repeats"] for row in plan.overview):
            found.append("No row is marked as a later attempt: retransmissions cannot be told.")
        return found


def _occupancy(kinds: Mapping[str, Sequence[int]]) -> list[int] | None:
    """Messages kept at the end of each slot: sent or received, and neither discarded nor stable yet."""
    freed = kinds.get("discard") or kinds.get("stable")
    if freed is None:
        return None
    held, found = 0, list[int]()
    taken = [kinds.get(kind, [0] * SLOTS) for kind in ("send", "receive")]
    for slot in range(SLOTS):
        held += sum(counts[slot] for counts in taken) - freed[slot]
        found.append(held)
    return found


def _spell(over: Over, site: Site) -> tuple[int, int]:
    """The slots of the longest stretch in which a site's latency is far above the others' median."""
    own = over.latency_ms.get(site)
    if own is None:
        return 0, SLOTS
    excess: list[float | None] = []
    for slot in range(SLOTS):
        mine = own[slot]
        others = [values[slot] for name, values in over.latency_ms.items() if name != site]
        known = [value for value in others if value is not None]
        excess.append(None if mine is None else mine - (median(known) if known else 0.0))
    most = max((value for value in excess if value is not None), default=0.0)
    best, first = (0, SLOTS), None
    longest = 0
    for slot, value in enumerate([*excess, -1.0]):
        is_slow = value is None or value >= SLOW_SHARE * most
        if is_slow and value is not None and first is None:
            first = slot
        elif not is_slow or slot == SLOTS:
            if first is not None and slot - first > longest:
                best, longest = (first, slot), slot - first
            first = None
    return best
