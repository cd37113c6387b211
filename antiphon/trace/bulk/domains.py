"""What the records of a message tell together: its domain, its group, and the sites that it is for."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from antiphon.trace.adapters.readers import Readers
from antiphon.trace.arrow import pa, pc
from antiphon.trace.bulk.share import Job, Share
from antiphon.trace.bulk.staging import Codes, grouped
from antiphon.trace.schema import ACCEPTED


class Reading(msgspec.Struct, frozen=True):
    """How many messages of a group and a domain a site delivered. Without a site: all sites together."""

    run: str
    group: str | None
    domain: str | None
    is_nameless: bool
    site: str | None
    messages: int


class Doubt(msgspec.Struct, frozen=True):
    """Messages of a share that something cannot be told of, and an example."""

    run: str
    group: str | None
    count: int
    example: str


def readers_of(runs: Sequence[str], readings: Sequence[Reading]) -> dict[str, Readers]:
    """Who reads what, run by run."""
    found = {run: Readers() for run in runs}
    for each in readings:
        if each.is_nameless:
            found[each.run].add_nameless(each.group, each.site, each.messages)
        elif each.site is not None:
            found[each.run].add(each.group, each.domain, each.site, each.messages)
    return found


def sum_doubts(found: Iterable[list[Doubt]]) -> list[tuple[tuple[str, str | None], tuple[int, str]]]:
    """The doubts of all shares by run and group: the count, and the first example by name."""
    sums: dict[tuple[str, str | None], tuple[int, str]] = {}
    for each in chain.from_iterable(found):
        count, example = sums.get((each.run, each.group), (0, each.example))
        sums[each.run, each.group] = count + each.count, min(example, each.example)
    return sorted(sums.items(), key=str)


class Told:
    """For each row of a share its message's domain and group; `message` numbers the messages.

    A domain is a place in `names`; -1 is none.
    """

    def __init__(self, job: Job, records: Share, message: Any) -> None:
        self._job, self._records, self.message = job, records, message
        self._size = int(message.max(initial=-1)) + 1
        own, groups = records.codes("domain"), records.codes("group")
        self.names = own
        self.domain = own.codes
        self.nameless = np.zeros(records.count, bool)
        """Whether no record tells the message's domain, although some name domains."""
        self.torn = np.zeros(self._size, bool)
        if job.places:
            self._place(own.codes)
        sends = np.flatnonzero(records.is_send)[::-1]
        group = np.full(self._size, -1, np.int64)
        group[message[sends]] = groups.codes[sends]
        self.groups = groups
        self.group = group[message] if len(message) else group
        """The group that the message's first send in the logs names."""

    def _place(self, own: Any) -> None:
        """Domains from all records of each message: the first send's that names one, else the common one."""
        records, message = self._records, self.message
        named = np.flatnonzero(records.is_message & (own >= 0))
        least = np.full(self._size, len(self.names.values), np.int64)
        greatest = np.full(self._size, -1, np.int64)
        np.minimum.at(least, message[named], own[named])
        np.maximum.at(greatest, message[named], own[named])
        self.torn = least < greatest
        found = np.where(least == greatest, least, -1)
        sends = named[records.is_send[named]][::-1]
        found[message[sends]] = own[sends]
        self.domain = np.where(records.is_message, found[message], -1)
        plain = np.zeros(self._size, bool)
        plain[message[records.is_deliver & (own < 0) & self._naming()]] = True
        plain &= greatest < 0
        self.nameless = records.is_message & (self.domain < 0) & ~plain[message]

    def _naming(self) -> Any:
        """Which rows are of sites that name the domains of what they deliver."""
        runs, sites = self._records.runs, self._records.sites
        place, pairs = grouped(runs.codes, sites.codes)
        known = [(runs.values[run], sites.values[site]) in self._job.naming for run, site in pairs]
        return np.array(known, bool)[place]

    def pairs(self, rows: Any) -> Any:
        """The first of these rows for each message and site, in order of messages."""
        sites = self._records.sites
        key = self.message[rows] * len(sites.values) + sites.codes[rows]
        return rows[np.unique(key, return_index=True)[1]]

    def readings(self) -> Iterator[Reading]:
        """What the deliveries of the share show of the sites."""
        records = self._records
        rows = self.pairs(np.flatnonzero(records.delivered()))
        yield from self._counted(rows, records.sites)
        rows = rows[self.nameless[rows]]
        yield from self._counted(rows[np.unique(self.message[rows], return_index=True)[1]], None)

    def _counted(self, rows: Any, sites: Codes | None) -> Iterator[Reading]:
        """How many of these rows there are of each run, group, domain and site."""
        runs = self._records.runs
        site = np.full(len(rows), -1, np.int64) if sites is None else sites.codes[rows]
        place, found = grouped(
            runs.codes[rows], self.group[rows], self.domain[rows], self.nameless[rows].astype(np.int64), site
        )
        counts = np.bincount(place, minlength=len(found)).tolist()
        for (run, group, domain, unplaced, at), messages in zip(found, counts, strict=True):
            yield Reading(
                runs.values[run], self.groups.value(group), self.names.value(domain), bool(unplaced),
                None if sites is None else sites.values[at], messages,
            )  # fmt: skip


class Placing:
    """The domains and destinations of a share's messages, once it is known who reads what."""

    def __init__(self, job: Job, records: Share, message: Any) -> None:
        self._job, self._records, self._message = job, records, message
        self._told = told = Told(job, records, message)
        self.groups, self.group, self.names, self.domain = told.groups, told.group, told.names, told.domain
        self.unplaced = told.nameless
        """Which rows are of messages that have a domain which no record tells."""
        if self.unplaced.any():
            rows = np.flatnonzero(self.unplaced)
            place, found = grouped(records.runs.codes[rows], told.group[rows])
            known = [self._readers(run).has_domains(told.groups.value(group)) for run, group in found]
            self.unplaced[rows] = np.array(known, bool)[place]
        self._held = told.pairs(np.flatnonzero(records.delivered() & self.unplaced))

    def _readers(self, run: int) -> Readers:
        return self._job.readers[self._records.runs.values[run]]

    def readers_of(self, run: int, group: int, domain: int) -> frozenset[str]:
        return self._readers(run).of(self.groups.value(group), self.names.value(domain))

    def column(self, sender: Any, number: Any) -> Any:
        """Each row's domain; one of its own for a message whose domain no record tells."""
        names = pa.array(self.names.values, pa.string())
        found = names.take(pa.array(self.domain, mask=self.domain < 0))
        if not self.unplaced.any():
            return found
        own = pc.binary_join_element_wise("?", sender, ":", number.cast(pa.string()), "")
        return pc.if_else(pa.array(self.unplaced), own, found)

    def destinations(self, rows: Any, accepted: Any) -> Any:
        """For each of these sends of unplaced messages the sites that it is for."""
        places, found = self._channels(rows)
        at, held = self._holders(rows)
        is_held = np.bincount(at, minlength=len(rows)) > 0
        readers = [(self._readers(run), self.groups.value(group)) for run, group in found]
        # Those of messages that some site delivered, and of the others.
        usual = [(each.certain(group), each.everyone(group)) for each, group in readers]
        sites = self._records.sites
        names = sorted(
            {*sites.values, *(site for both in usual for each in both for site in each)} - {ACCEPTED}
        )
        rank = {name: at for at, name in enumerate([*names, ACCEPTED])}
        ranks = np.array([rank[site] for site in sites.values], np.int64)
        pairs = [(at, ranks[sites.codes[held]])]
        for place, both in enumerate(usual):
            for each, counts in zip(both, (is_held, ~is_held), strict=True):
                own = np.flatnonzero((places == place) & counts)
                pairs.append((np.repeat(own, len(each)), np.tile([rank[site] for site in each], len(own))))
        own = np.flatnonzero(accepted[rows])
        pairs.append((own, np.full(len(own), rank[ACCEPTED])))
        key = np.unique(np.concatenate([row * len(rank) + place for row, place in pairs]).astype(np.int64))
        bounds = np.searchsorted(key // len(rank), np.arange(len(rows) + 1)).astype(np.int32)
        values = pa.array([*names, ACCEPTED], pa.string()).take(pa.array(key % len(rank)))
        return pa.ListArray.from_arrays(pa.array(bounds), values)

    def _channels(self, rows: Any) -> tuple[Any, list[tuple[int, ...]]]:
        """The runs and groups of sends."""
        return grouped(self._records.runs.codes[rows], self.groups.codes[rows])

    def _holders(self, rows: Any) -> tuple[Any, Any]:
        """For the messages of these rows the deliveries, one for each site: the row's place, and theirs."""
        held = self._message[self._held]
        begin = np.searchsorted(held, self._message[rows])
        count = np.searchsorted(held, self._message[rows], "right") - begin
        at = np.repeat(np.arange(len(rows)), count)
        within = np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count)
        return at, self._held[np.repeat(begin, count) + within]

    def undecided(self, rows: Any, names: Callable[[Any], list[str]]) -> Iterator[Doubt]:
        """Of these first sends of unplaced messages those that a doubtful site did not deliver; `names` names
        the messages of rows."""
        places, found = self._channels(rows)
        sites = self._records.sites
        for place, (run, group) in enumerate(found):
            own = rows[places == place]
            doubtful = self._readers(run).doubtful(self.groups.value(group))
            at, held = self._holders(own)
            is_doubtful = np.array([site in doubtful for site in sites.values], bool)
            counts = np.bincount(at[is_doubtful[sites.codes[held]]], minlength=len(own))
            yield from self._doubts(own[counts < len(doubtful)], self.groups.value(group), names)

    def unordered(self, rows: Any) -> dict[str, int]:
        """By run, how many of these first sends are of unplaced messages that were delivered."""
        at, _ = self._holders(rows)
        runs = self._records.runs
        codes, counts = np.unique(runs.codes[rows[np.unique(at)]], return_counts=True)
        return {runs.values[run]: n for run, n in zip(codes.tolist(), counts.tolist(), strict=True)}

    def torn(self, names: Callable[[Any], list[str]]) -> Iterator[Doubt]:
        """The messages whose records name several domains."""
        rows = np.flatnonzero(self._records.is_message & self._told.torn[self._message])
        rows = rows[np.unique(self._message[rows], return_index=True)[1]]
        runs = self._records.runs.codes[rows]
        for run in np.unique(runs).tolist():
            yield from self._doubts(rows[runs == run], None, names)

    def _doubts(self, rows: Any, group: str | None, names: Callable[[Any], list[str]]) -> Iterator[Doubt]:
        """These rows, which are of one run."""
        if len(rows):
            run = self._records.runs.codes[rows[0]]
            yield Doubt(self._records.runs.values[run], group, len(rows), min(names(rows)))
