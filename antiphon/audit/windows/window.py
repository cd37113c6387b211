"""One window: its rows as arrays, and where they stand in the whole run.

Positions count a site's messages over the whole run, places its deliveries. Rows whose positions meet form a
fragment: nothing of another window lies between them.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np

from antiphon.audit.case import Case
from antiphon.audit.kernels import flow, identity
from antiphon.audit.log import build_log
from antiphon.audit.packing import DELIVER, RECEIVE, SEND, Segment, SitePart, column_of
from antiphon.audit.windows.cutting import Cuts
from antiphon.audit.windows.routing import Chunk
from antiphon.core.ids import MessageId, Site
from antiphon.core.recording import Property
from antiphon.trace.schema import Run

Array = Any


class Context(NamedTuple):
    """What every window of a run must know."""

    run: Run
    cuts: Cuts
    limits: dict[Property, int | None]
    """The properties to judge, and how many violations of each to explain; None for all."""
    in_order: bool = True
    """Whether spells of presence are judged by the agreed order where there is one."""
    every_spell: bool = False
    """Whether spells of sites without absences are summarised, too: such a site may go absent later."""
    lagging: frozenset[Site] = frozenset()
    """Sites that may still deliver what they lack: nothing is concluded from it yet."""


class Delivered(NamedTuple):
    """A delivery: its place among its site's deliveries, its step, its message."""

    place: int
    step: int
    message: MessageId


class Learning(NamedTuple):
    """By which rows sites learn of messages, for causal order."""

    kinds: Array
    """The kinds of all entries; those by which sites learn are deliveries."""
    homes_start: Array
    """Where each message's homes begin."""
    homes: Array
    """For unsent messages: the sites that learned of them, and at which position."""


class Window:
    """The rows of one window."""

    def __init__(self, context: Context, chunks: Sequence[Chunk]) -> None:
        self.context = context
        # Rows are laid out by position: a batch that was divided has one step in several rows.
        rows = [_Rows.of(chunk) for chunk in chunks]
        segments = [_laid_out(chunk, own.positions) for chunk, own in zip(chunks, rows, strict=True)]
        self.log = build_log(context.run, [*segments, _silent(context.cuts.sites)])
        self._place_rows(chunks, rows)

    def _place_rows(self, chunks: Sequence[Chunk], rows: "Sequence[_Rows]") -> None:
        """Each entry's position, each delivery's place, and higher deliveries before a row's."""
        by_site: dict[Site, list[_Rows]] = {site: [] for site in self.context.cuts.sites}
        for chunk, whole in zip(chunks, rows, strict=True):
            begin = 0
            for part in chunk.segment.parts:
                by_site[part.site].append(whole.between(begin, begin + part.rows))
                begin += part.rows
        sites = [_Rows.joined(by_site[site]) for site in self.log.sites[: self.log.logged]]
        self.log = self.log._replace(
            steps={site: own.steps for site, own in enumerate(sites)}, evidence=self.context.cuts.evidence
        )
        placed = _Rows.concatenated(sites)
        positions, places, above = placed.positions, placed.places, placed.above
        deliveries = self.log.delivery_entries
        if len(self.log.row_starts):
            entries = np.arange(len(self.log.kinds))
            row = np.searchsorted(self.log.row_starts, entries, "right") - 1
            offset = entries - self.log.row_starts[row]
            positions = positions[row] + offset
            places = places[row] + offset
            above = None if above is None else above[:, row]
        self.positions = positions
        self.places = places[deliveries]
        none = np.full(len(deliveries), -1, np.int64)
        self.above = (none, none) if above is None else (above[0][deliveries], above[1][deliveries])
        self.fragment = _fragments(self.log.starts, self.positions)
        self.delivery_fragment = _fragments(self.log.delivery_starts, self.places)

    @cached_property
    def firsts(self) -> Array:
        """Whether each delivery is its site's first of that message."""
        return flow.first_of_each(self.log.delivered, self.log.delivery_starts, self.log.message_count)

    @cached_property
    def case(self) -> Case:
        """This window's rows, to be judged by themselves."""
        case = Case(self.log, self.context.limits, self.context.in_order)
        case.absent = self.absent
        return case

    @cached_property
    def absent(self) -> Array:
        """Which sites have absences."""
        absences = self.context.cuts.absences
        return np.array([len(absences.get(site, ())) > 0 for site in self.log.sites], np.bool_)

    @cached_property
    def excused(self) -> Array:
        """Which sites prove nothing by what they lack: they have absences, holes in their logs, or lag."""
        lagging = self.context.lagging
        return (
            self.absent | self.case.holed | np.array([site in lagging for site in self.log.sites], np.bool_)
        )

    @cached_property
    def delivery_sites(self) -> Array:
        """Each delivery's site."""
        return np.repeat(np.arange(self.log.logged, dtype=np.int32), np.diff(self.log.delivery_starts))

    @cached_property
    def sent_by(self) -> Array:
        """Each message's sending site, or -1."""
        sent = self.log.send_entry >= 0
        sites = np.searchsorted(self.log.starts, self.log.send_entry, "right") - 1
        return np.where(sent, sites, -1).astype(np.int32)

    @cached_property
    def sent_at(self) -> Array:
        """The position of each message's send, or -1."""
        sent = self.log.send_entry >= 0
        if not len(self.positions):
            return np.full(len(sent), -1, np.int64)
        return np.where(sent, self.positions[np.where(sent, self.log.send_entry, 0)], -1)

    @cached_property
    def vector_rows(self) -> Array:
        """Each sent message's row in a table of clocks; -1 for unsent messages."""
        sent = self.log.send_entry >= 0
        return np.where(sent, np.cumsum(sent) - 1, -1).astype(np.int32)

    @cached_property
    def sends(self) -> Array:
        """For each entry that is a message's send, its row of clocks; else -1."""
        sends = np.full(len(self.log.kinds), -1, np.int32)
        places = np.flatnonzero(self.log.kinds == SEND)
        sends[places] = self.vector_rows[self.log.messages[places]]
        return sends

    @cached_property
    def first_entries(self) -> Array:
        """Whether each entry is a first delivery."""
        firsts = np.zeros(len(self.log.kinds), np.bool_)
        firsts[self.log.delivery_entries[self.firsts]] = True
        return firsts

    @cached_property
    def by_delivery(self) -> "Learning":
        """Sites learn of messages when they deliver them."""
        return self._learning(self.log.kinds)

    @cached_property
    def by_receipt(self) -> "Learning":
        """Sites learn of messages when they receive them; those with absences when they deliver them."""
        log = self.log
        counts = np.repeat(~self.absent[: log.logged], np.diff(log.starts))
        kinds = np.where((log.kinds == RECEIVE) & counts, DELIVER, log.kinds).astype(np.uint8)
        return self._learning(kinds)

    def _learning(self, kinds: Array) -> "Learning":
        log = self.log
        entries = np.flatnonzero(kinds == DELIVER)
        entries = entries[log.send_entry[log.messages[entries]] < 0]
        sites = np.searchsorted(log.starts, entries, "right") - 1
        order, first = np.unique(
            log.messages[entries].astype(np.int64) * log.logged + sites, return_index=True
        )
        messages = order // max(log.logged, 1)
        starts = np.searchsorted(messages, np.arange(log.message_count + 1))
        homes = np.stack([sites[first], self.positions[entries[first]]], axis=1).astype(np.int64)
        return Learning(kinds, starts, homes)

    def delivered(self, delivery: int) -> Delivered:
        log = self.log
        step = log.place(int(log.delivery_entries[delivery]))[1]
        return Delivered(int(self.places[delivery]), step, log.message_id(int(log.delivered[delivery])))


def _silent(sites: list[Site]) -> Segment:
    """A segment without rows: every site of the run is one that logged, even if not in this window."""
    empty = column_of(np.empty(0, np.int64))
    kinds = column_of(np.empty(0, np.uint8))
    return Segment([SitePart(site, 0, 0) for site in sites], None, kinds, [], empty, empty, None, [], None)


def _laid_out(chunk: Chunk, positions: Array) -> Segment:
    """A chunk's segment with positions instead of steps."""
    numbers = chunk.segment.numbers.array().astype(np.int64) + chunk.least
    return msgspec.structs.replace(chunk.segment, steps=column_of(positions), numbers=column_of(numbers))


class _Rows(NamedTuple):
    """Rows with their steps, positions, places among the deliveries, and what is above them, if anything
    is above any."""

    steps: Array
    positions: Array
    places: Array
    above: Array | None

    @classmethod
    def of(cls, chunk: Chunk) -> "_Rows":
        steps = chunk.steps.array()
        places = np.full(len(steps), -1, np.int64)
        places[chunk.segment.kinds.array() == DELIVER] = chunk.places.array()
        above = None if chunk.above is None else chunk.above.array().reshape(2, -1)
        return cls(steps, chunk.positions.array(), places, above)

    @classmethod
    def concatenated(cls, rows: "Sequence[_Rows]") -> "_Rows":
        if len(rows) == 1:
            return rows[0]
        none = np.empty(0, np.int64)
        above: Array | None = None
        if any(own.above is not None for own in rows):
            filled = [np.full((2, len(own.steps)), -1) if own.above is None else own.above for own in rows]
            above = np.concatenate(filled, axis=1)
        return cls(
            np.concatenate([none, *(own.steps for own in rows)]),
            np.concatenate([none, *(own.positions for own in rows)]),
            np.concatenate([none, *(own.places for own in rows)]),
            above,
        )

    @classmethod
    def joined(cls, rows: "Sequence[_Rows]") -> "_Rows":
        """The rows of one site in the order of their positions, in which its parts mostly are."""
        ordered = sorted(rows, key=lambda own: int(own.positions[0]) if len(own.positions) else -1)
        found = cls.concatenated(ordered)
        if (found.positions[1:] >= found.positions[:-1]).all():
            return found
        order = np.argsort(found.positions, kind="stable")
        above = None if found.above is None else found.above[:, order]
        return cls(found.steps[order], found.positions[order], found.places[order], above)

    def between(self, begin: int, end: int) -> "_Rows":
        above = None if self.above is None else self.above[:, begin:end]
        return _Rows(self.steps[begin:end], self.positions[begin:end], self.places[begin:end], above)


def _fragments(starts: Array, positions: Array) -> Array:
    """Each entry's fragment: a new one begins with each site, and where positions do not meet."""
    if not len(positions):
        return identity.empty()
    begins = np.diff(positions, prepend=positions[0]) != 1
    begins[starts[:-1][starts[:-1] < len(positions)]] = True
    return np.cumsum(begins) - 1
