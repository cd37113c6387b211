"""Total order inside one window, and how paths of consecutive deliveries lead through it.

Only a site's first delivery of a message counts. Within a window a site's deliveries are joined even where
those of other windows lie between: a path leads through them. So messages that are entangled here are
entangled in the run, and only further messages and larger knots are to be found outside.
"""

from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from antiphon.audit.kernels import flow
from antiphon.audit.kernels.order import adjacency, merge
from antiphon.audit.log import Log
from antiphon.audit.properties.order import judge_total
from antiphon.audit.windows.window import Delivered, Window
from antiphon.check import explain
from antiphon.check.verdict import Violation
from antiphon.core.ids import MessageId, Site

Array = Any


class Stretch(NamedTuple):
    """A fragment of a site's first deliveries: its site, its first and its last delivery."""

    site: Site
    first: Delivered
    last: Delivered


class Spanned(NamedTuple):
    """The part of a knot that lies in one window."""

    size: int
    least: MessageId
    arcs: list[tuple[Site, int, explain.Arc]]
    """Arcs between members within the window's stretches, with site and place; left out of large knots."""
    leaving: Array
    """The stretches whose last delivery is in the knot and leads on within it."""


class Reach(NamedTuple):
    """By stretch and site: the first delivery on a path from its first one, the last on one to its last."""

    forward: Array
    backward: Array


class Order:
    """The first deliveries of a window, as a graph."""

    def __init__(self, window: Window) -> None:
        self.window = window
        firsts = window.firsts
        self.places = window.places[firsts]
        log = window.log
        starts = np.concatenate([[0], np.cumsum(firsts)])[log.delivery_starts]
        self.log: Log = log._replace(
            delivered=log.delivered[firsts],
            delivery_entries=log.delivery_entries[firsts],
            delivery_starts=starts.astype(np.int64),
        )
        self.sites = window.delivery_sites[firsts]
        self.deliveries = np.flatnonzero(firsts)
        fragment = window.delivery_fragment[firsts]
        self.edges = np.flatnonzero(np.diff(fragment, prepend=-1, append=-1))

    def stretches(self) -> list[Stretch]:
        at = self.window.delivered
        return [
            Stretch(
                self.log.sites[self.sites[begin]],
                at(int(self.deliveries[begin])),
                at(int(self.deliveries[end - 1])),
            )
            for begin, end in pairwise(self.edges.tolist())
        ]

    @cached_property
    def _arcs(self) -> tuple[Array, Array]:
        """Tails and heads of the arcs between neighbours of one site."""
        same = self.sites[1:] == self.sites[:-1]
        return self.log.delivered[:-1][same], self.log.delivered[1:][same]

    @cached_property
    def _forward(self) -> tuple[Array, Array]:
        tails, heads = self._arcs
        offsets, targets, _ = adjacency(tails, heads, self.log.message_count)
        return offsets, targets

    @cached_property
    def _backward(self) -> tuple[Array, Array]:
        tails, heads = self._arcs
        offsets, targets, _ = adjacency(heads, tails, self.log.message_count)
        return offsets, targets

    @cached_property
    def _merged(self) -> Array:
        position, placed, _ = merge(self.log.delivered, self.log.delivery_starts, self.log.message_count)
        held = np.flatnonzero(position >= 0)
        merged = np.empty(placed, np.int64)
        merged[position[held]] = held
        return merged

    @cached_property
    def following(self) -> Array:
        """By message and site: the place of the first delivery on a path from the message."""
        reached = np.full((self.log.message_count, self.log.logged), flow.NEVER, np.int64)
        reached[self.log.delivered, self.sites] = self.places
        flow.reach(self._merged, *self._forward, reached)
        return reached

    @cached_property
    def preceding(self) -> Array:
        """By message and site: the place of the last delivery on a path to the message; -1 if none."""
        reached = np.full((self.log.message_count, self.log.logged), 1, np.int64)
        reached[self.log.delivered, self.sites] = -self.places
        flow.reach(self._merged[::-1].copy(), *self._backward, reached)
        return -reached

    def reach(self) -> Reach:
        heads = self.log.delivered[self.edges[:-1]]
        tails = self.log.delivered[self.edges[1:] - 1]
        return Reach(self.following[heads], self.preceding[tails])

    def knots(self) -> tuple[int, list[Violation]]:
        """The window's own knots, as if there were no other window."""
        return judge_total(self.window.case)

    def split(
        self, entered: list[tuple[Array, Array]], most: int
    ) -> tuple[list[Spanned | None], int, list[Violation]]:
        """The parts of knots that span windows, and this window's own knots that none of them absorbs.

        Each knot that spans windows is given by the stretches whose first delivery is in it, and those whose
        last delivery leads to it. At most `most` members of a knot get their arcs.
        """
        absorbed = np.zeros(self.log.message_count, np.bool_)
        spanned = [self._spanned(heads, tails, absorbed, most) for heads, tails in entered]
        order = self.window.case.order
        order.components = [
            component for component in order.components if not absorbed[order.nodes[component[0]]]
        ]
        return (spanned, *judge_total(self.window.case))

    def _spanned(self, heads: Array, tails: Array, absorbed: Array, most: int) -> Spanned | None:
        begins = self.log.delivered[self.edges[heads]].astype(np.int64)
        ends = self.log.delivered[self.edges[tails + 1] - 1].astype(np.int64)
        inside = flow.flood(begins, *self._forward) & flow.flood(ends, *self._backward)
        members = np.flatnonzero(inside)
        if not len(members):
            return None
        absorbed[members] = True
        arcs = self._arcs_within(inside) if len(members) <= most else []
        return Spanned(len(members), self.log.message_id(int(members[0])), arcs, tails[inside[ends]])

    def _arcs_within(self, inside: Array) -> list[tuple[Site, int, explain.Arc]]:
        """Arcs between neighbouring first deliveries of one stretch, both of them members."""
        joined = np.ones(len(self.places), np.bool_)
        joined[self.edges[:-1]] = False
        held = inside[self.log.delivered]
        ends = np.flatnonzero(joined[1:] & held[1:] & held[:-1]) + 1
        at = self.window.delivered
        return [
            placed_arc(
                self.log.sites[self.sites[end]],
                at(int(self.deliveries[end - 1])),
                at(int(self.deliveries[end])),
            )
            for end in ends.tolist()
        ]


def placed_arc(site: Site, first: Delivered, second: Delivered) -> tuple[Site, int, explain.Arc]:
    """An arc between two deliveries, with the site and the place that it is sorted by."""
    return site, second.place, explain.Arc(site, first.message, first.step, second.message, second.step)
