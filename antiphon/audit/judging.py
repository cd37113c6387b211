"""One run's log judged: the counts of all properties, and the violations to explain.

The kernels find everything. This module runs them, property by property, and explains what they found with
the same sentences as the pure checkers in `antiphon.check`. Counts are always complete; only as many
violations of each property as asked for are explained. Where the log holds batches as wholes, a violation of
a batch counts for each of its messages and is explained once, for the first.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np

from antiphon.audit.kernels import atomicity, causality, deliveries, order, stability
from antiphon.audit.log import Log
from antiphon.check import explain
from antiphon.check.graphs import shortest_cycle
from antiphon.check.pairwise import differing
from antiphon.check.verdict import Violation, Witness
from antiphon.core.ids import Site
from antiphon.core.recording import KINDS, PROPERTIES, Property

WHOLE_SEARCH: Final = 500
"""Up to this many entangled messages, every one is tried as the start of a shortest cycle."""
CYCLE_STARTS: Final = 1000
"""Beyond that, at most this many backward arcs are tried, the shortest first. Raising it costs time."""

Array = Any


class Judgement(msgspec.Struct, frozen=True):
    """The violations of one run."""

    counts: dict[Property, int]
    violations: list[Violation]
    exact: bool = True
    """Whether judging batches as wholes gives the result of judging message by message.

    Not if a message was delivered twice or precedes itself: then messages of one batch precede one another
    both ways.
    """


class _Order:
    """The merged order of a run's deliveries and, where arcs lead backward in it, the entangled messages."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.position, self.placed, certain = order.merge(
            log.delivered, log.delivery_starts, log.message_count
        )
        self.components: list[Array] = []
        if not certain:
            self._entangle()

    def _entangle(self) -> None:
        log = self.log
        blocks = order.entangled_blocks(log.delivered, log.delivery_starts, self.position, self.placed)
        self.ends = order.arcs_within(log.delivered, log.delivery_starts, self.position, blocks)
        heads, tails = log.delivered[self.ends], log.delivered[self.ends - 1]
        self.nodes = np.unique(np.concatenate([heads, tails]))
        tail_nodes = np.searchsorted(self.nodes, tails)
        head_nodes = np.searchsorted(self.nodes, heads)
        self.offsets, self.targets, self.arcs = order.adjacency(tail_nodes, head_nodes, len(self.nodes))
        self.component = order.strong_components(self.offsets, self.targets)
        by_component = np.argsort(self.component, kind="stable")
        edges = np.flatnonzero(np.diff(self.component[by_component], prepend=-1, append=-1))
        # Nodes are in order of messages, so that the first of each component is its least.
        parts = [by_component[begin:end] for begin, end in pairwise(edges)]
        self.components = sorted((part for part in parts if len(part) > 1), key=lambda part: int(part[0]))

    def cycle(self, component: Array) -> list[int]:
        """A shortest cycle, as the deliveries that end its arcs."""
        if len(component) <= WHOLE_SEARCH:
            return self._shortest_of_all(component)
        return self._shortest_of_backward_arcs(component)

    def _shortest_of_all(self, component: Array) -> list[int]:
        graph: dict[int, dict[int, int]] = {}
        inside = set(component.tolist())
        for node in component.tolist():
            following = graph.setdefault(node, {})
            for slot in range(self.offsets[node], self.offsets[node + 1]):
                if int(self.targets[slot]) in inside:
                    following.setdefault(int(self.targets[slot]), int(self.ends[self.arcs[slot]]))
        cycle = shortest_cycle(graph, component.tolist())
        return [graph[node][after] for node, after in zip(cycle, [*cycle[1:], cycle[0]], strict=True)]

    def _shortest_of_backward_arcs(self, component: Array) -> list[int]:
        """Every cycle has an arc that leads backward in the merged order, so starting there suffices."""
        tails = np.repeat(np.arange(len(self.nodes)), np.diff(self.offsets))
        places = self.position[self.nodes]
        span = places[tails] - places[self.targets]
        own = self.component == self.component[component[0]]
        backward = np.flatnonzero((span > 0) & own[tails] & own[self.targets])
        starts = dict.fromkeys(tails[backward[np.argsort(span[backward], kind="stable")]].tolist())
        came_by = np.full(len(self.nodes), -1, np.int64)
        best: Array = np.empty(0, np.int64)
        for start in list(starts)[:CYCLE_STARTS]:
            bound = len(best) if len(best) else len(self.nodes) + 1
            cycle = order.cycle_through(start, self.offsets, self.targets, self.component, came_by, bound)
            best = cycle if len(cycle) else best
            if len(best) == 2:
                break
        return [int(self.ends[self.arcs[slot]]) for slot in best]


class Judge:
    """Judges one log by the properties in `limits`, which bounds how many violations of each are explained.

    A bound of None explains all of them.
    """

    def __init__(self, log: Log, limits: Mapping[Property, int | None], in_order: bool) -> None:
        self.log = log
        self.limits = limits
        self.order = _Order(log)
        self.in_order = in_order and not self.order.components
        """Whether a spell of presence is judged by the run's total order, not by senders' numbers."""
        self.first = deliveries.first_deliveries(log.delivered, log.message_count)
        self.absent = atomicity.absent_sites(log.kinds, log.starts, len(log.sites))
        self.circular = False

    def judgement(self) -> Judgement:
        counts: dict[Property, int] = {}
        explained: list[Violation] = []
        for name in self.limits:
            counts[name], violations = _JUDGES[name](self)
            explained += violations
        return Judgement(
            counts, explained, not len(self.log.weights) or not (counts["duplicate"] or self.circular)
        )

    def integrity(self) -> tuple[int, list[Violation]]:
        log = self.log
        count, found = self._search(
            "integrity",
            lambda found: deliveries.find_foreign(
                log.delivered, log.delivery_starts, log.destination_set, log.sets, found
            ),
            self._of_deliveries,
        )
        return count, [self._foreign(place) for place in found[:, 0].tolist()]

    def _foreign(self, place: int) -> Violation:
        log = self.log
        site, step = self._delivered_at(place)
        number = int(log.delivered[place])
        message = log.message_id(number)
        rows = [self._witness(place)]
        if log.send_entry[number] < 0:
            story = explain.unsent(site, step, message)
        else:
            sent_by, sent_step = log.place(int(log.send_entry[number]))
            addressed = log.sets[log.destination_set[number]]
            names = [log.sites[index] for index in np.flatnonzero(addressed).tolist()]
            story = explain.misaddressed(site, step, message, sent_by, sent_step, names)
            rows.append(Witness(sent_by, sent_step, *message))
        return Violation("integrity", log.run.run, site, *message, story, tuple(rows))

    def duplicate(self) -> tuple[int, list[Violation]]:
        log = self.log
        count, found = self._search(
            "duplicate",
            lambda found: deliveries.find_duplicates(
                log.delivered, log.delivery_starts, log.message_count, found
            ),
            self._of_deliveries,
        )
        return count, [self._duplicate(place, first) for place, first, *_ in found.tolist()]

    def _duplicate(self, place: int, first: int) -> Violation:
        site, step = self._delivered_at(place)
        message = self.log.message_id(int(self.log.delivered[place]))
        story = explain.duplicate(site, self._delivered_at(first)[1], step, message)
        rows = (self._witness(first), self._witness(place))
        return Violation("duplicate", self.log.run.run, site, *message, story, rows)

    def fifo(self) -> tuple[int, list[Violation]]:
        log = self.log
        count, found = self._search(
            "fifo",
            lambda found: deliveries.find_overtaken(
                log.delivered, log.delivery_starts, log.sender_starts, found
            ),
            self._of_deliveries,
        )
        return count, [self._overtaken(place, before) for place, before, *_ in found.tolist()]

    def _overtaken(self, place: int, before: int) -> Violation:
        log = self.log
        site, step = self._delivered_at(place)
        message, higher = (
            log.message_id(int(log.delivered[place])),
            log.message_id(int(log.delivered[before])),
        )
        story = explain.fifo(site, higher, self._delivered_at(before)[1], message, step)
        rows = (self._witness(before), self._witness(place))
        return Violation("fifo", log.run.run, site, *message, story, rows)

    def total(self) -> tuple[int, list[Violation]]:
        components = self.order.components
        return len(components), [
            self._entangled(component) for component in components[: self.limits["total"]]
        ]

    def _entangled(self, component: Array) -> Violation:
        log = self.log
        arcs = [self._arc(end) for end in self.order.cycle(component)]
        rows = [
            row
            for arc in arcs
            for row in (
                Witness(arc.site, arc.first_step, *arc.first),
                Witness(arc.site, arc.second_step, *arc.second),
            )
        ]
        least = log.message_id(int(self.order.nodes[component[0]]))
        story = explain.total(arcs, log.weigh(self.order.nodes[component]))
        return Violation("total", log.run.run, None, *least, story, tuple(dict.fromkeys(rows)))

    def _arc(self, end: int) -> explain.Arc:
        site, first_step = self._delivered_at(end - 1)
        first, second = (self.log.message_id(int(self.log.delivered[place])) for place in (end - 1, end))
        return explain.Arc(site, first, first_step, second, self._delivered_at(end)[1])

    def pairwise(self) -> tuple[int, list[Violation]]:
        """By arrays, two sites at a time: few runs promise pairwise order, and they have few sites."""
        log, count = self.log, 0
        explained: list[Violation] = []
        limit = self.limits["pairwise"]
        firsts = [self._firsts(site) for site in range(log.logged)]
        at = np.full(log.message_count, -1, np.int64)
        for site in range(log.logged):
            for other in range(site + 1, log.logged):
                at[log.delivered[firsts[other]]] = firsts[other]
                shared = firsts[site][at[log.delivered[firsts[site]]] >= 0]
                elsewhere = at[log.delivered[shared]]
                wrong = np.flatnonzero(np.diff(elsewhere) < 0)
                count += len(wrong) > 0
                if len(wrong) and (limit is None or len(explained) < limit):
                    own = slice(wrong[0], wrong[0] + 2)
                    explained.append(self._differing(shared[own].tolist(), elsewhere[own].tolist()))
                at[log.delivered[firsts[other]]] = -1
        return count, explained

    def _firsts(self, site: int) -> Array:
        """The places of a site's first delivery of each message."""
        begin, end = self.log.delivery_starts[site : site + 2]
        return begin + np.sort(np.unique(self.log.delivered[begin:end], return_index=True)[1])

    def _differing(self, own: list[int], others: list[int]) -> Violation:
        """Two deliveries at one site, and those of the same messages in reverse order at another."""
        first, second = (self.log.message_id(int(self.log.delivered[place])) for place in own)
        (site, first_step), (_, second_step) = map(self._delivered_at, own)
        (other, other_first), (_, other_second) = map(self._delivered_at, others)
        return differing(
            self.log.run.run,
            explain.Arc(site, first, first_step, second, second_step),
            explain.Arc(other, second, other_second, first, other_first),
        )

    def causal(self) -> tuple[int, list[Violation]]:
        log = self.log
        past, self.circular = _pasts(log)
        count, found = self._search(
            "causal",
            lambda found: causality.find_early(found, log.delivered, log.delivery_starts, *past),
            self._of_deliveries,
        )
        via = np.full((log.message_count if len(found) else 0, 2), -1, np.int64)
        return count, [self._early(place, past, via) for place in np.sort(found[:, 0]).tolist()]

    def _early(self, place: int, past: Any, via: Array) -> Violation:
        log = self.log
        end = log.delivery_starts[np.searchsorted(log.delivery_starts, place, "right")]
        later = causality.find_cause(log.delivered, place, end, *past)
        effect, cause = int(log.delivered[place]), int(log.delivered[later])
        links = causality.find_chain(log.kinds, log.messages, log.starts, log.send_entry, cause, effect, via)
        chain = [self._link(entry, after) for entry, after in links]
        site, step = self._delivered_at(place)
        message = log.message_id(effect)
        cause_step = self._delivered_at(later)[1]
        story = explain.causal(site, message, step, log.message_id(cause), cause_step, chain)
        rows = [self._witness(place), self._witness(later)]
        for link in chain:
            rows += [
                Witness(link.site, link.before_step, *link.before),
                Witness(link.site, link.after_step, *link.after),
            ]
        return Violation("causal", log.run.run, site, *message, story, tuple(dict.fromkeys(rows)))

    def _link(self, entry: int, after: int) -> explain.Link:
        log = self.log
        site, step = log.place(entry)
        verb = "delivered" if KINDS[log.kinds[entry]] == "deliver" else "sent"
        before, following = log.message_id(int(log.messages[entry])), log.message_id(after)
        return explain.Link(site, verb, before, step, following, log.place(int(log.send_entry[after]))[1])

    def atomicity(self) -> tuple[int, list[Violation]]:
        log = self.log
        count, found = self._search(
            "atomicity",
            lambda found: atomicity.find_missing(
                log.delivered,
                log.delivery_starts,
                self.first,
                log.destination_set,
                log.sets,
                self.absent,
                found,
            ),
            lambda found: log.weigh(found[:, 1]),
        )
        explained = [self._missing(site, message) for site, message, *_ in found.tolist()]
        for site in np.flatnonzero(self.absent).tolist():
            lacking = dict(self._lacking_in_order(site) if self.in_order else self._lacking_in_numbers(site))
            count += log.weigh(np.array(list(lacking), np.int64))
            limit = self.limits["atomicity"]
            room = None if limit is None else max(limit - len(explained), 0)
            explained += [self._missing_in_spell(site, *item) for item in list(lacking.items())[:room]]
        return count, explained

    def _missing(self, site: int, message: int) -> Violation:
        log = self.log
        elsewhere, step = self._delivered_at(int(self.first[message]))
        name = log.message_id(message)
        story = explain.missing(log.sites[site], name, elsewhere, step)
        rows = (Witness(elsewhere, step, *name),)
        return Violation("atomicity", log.run.run, log.sites[site], *name, story, rows)

    def _spells(self, site: int) -> list[tuple[int, int]]:
        log = self.log
        begin, end = log.starts[site], log.starts[site + 1]
        return list(atomicity.find_spells(log.kinds, begin, end, log.delivery_starts[site]))

    def _lacking_in_order(self, site: int) -> Iterator[tuple[int, tuple[int, int]]]:
        """Missing messages, each with the first and the last delivery of the spell that lacks it."""
        log, position = self.log, self.order.position
        placed = np.empty(self.order.placed, np.int32)
        held = np.flatnonzero(position >= 0)
        placed[position[held]] = held
        arcs: tuple[Array, ...] = ()
        for begin, end in self._spells(site):
            candidates = atomicity.lacking_between(
                log.delivered, begin, end, site, position, placed, log.destination_set, log.sets
            )
            if not len(candidates):
                continue
            arcs = arcs or self._arcs_by_place()
            low, high = position[log.delivered[begin]], position[log.delivered[end - 1]]
            kept = atomicity.on_paths(low, high, arcs[0], arcs[1], position, candidates)
            for message in candidates[kept].tolist():
                yield message, (begin, end - 1)

    def _arcs_by_place(self) -> tuple[Array, ...]:
        """All arcs of the run, as places of the merged order grouped by tail."""
        log = self.log
        ends = np.ones(len(log.delivered), np.bool_)
        ends[log.delivery_starts[:-1][log.delivery_starts[:-1] < len(ends)]] = False
        places = self.order.position[log.delivered]
        at = np.flatnonzero(ends)
        at = at[places[at] != places[at - 1]]
        offsets, targets, _ = order.adjacency(places[at - 1], places[at], self.order.placed)
        return offsets, targets

    def _lacking_in_numbers(self, site: int) -> Iterator[tuple[int, tuple[int, int]]]:
        """Missing messages, each with a delivery of a lower and of a higher number in that spell."""
        log = self.log
        senders = len(log.senders)
        sender_of = np.repeat(np.arange(senders, dtype=np.int32), np.diff(log.sender_starts))
        seen: set[int] = set()
        for begin, end in self._spells(site):
            for message, lower, upper in atomicity.lacking_in_numbers(
                log.delivered,
                begin,
                end,
                site,
                sender_of,
                senders,
                self.first,
                log.destination_set,
                log.sets,
            ):
                if message not in seen:
                    seen.add(message)
                    yield message, (lower, upper)

    def _missing_in_spell(self, site: int, message: int, ends: tuple[int, int]) -> Violation:
        log = self.log
        describe = explain.missing_in_order if self.in_order else explain.missing_in_numbers
        elsewhere, elsewhere_step = self._delivered_at(int(self.first[message]))
        one, other = (log.message_id(int(log.delivered[place])) for place in ends)
        one_step, other_step = (self._delivered_at(place)[1] for place in ends)
        name = log.message_id(message)
        story = describe(log.sites[site], name, one, one_step, other, other_step, elsewhere, elsewhere_step)
        rows = (*map(self._witness, ends), Witness(elsewhere, elsewhere_step, *name))
        return Violation("atomicity", log.run.run, log.sites[site], *name, story, rows)

    def stability(self) -> tuple[int, list[Violation]]:
        log = self.log
        if not log.message_count:
            return 0, []
        entries = stability.first_declarations(log.kinds, log.messages, log.starts, log.send_entry)
        if not len(entries):
            return 0, []
        entries = entries[np.argsort(log.messages[entries], kind="stable")]
        receptions = stability.first_receptions(log.kinds, log.messages, log.starts, log.message_count)
        failing = self._failing(entries, receptions)
        broken = np.flatnonzero(failing >= 0)
        chosen = broken[: self.limits["stability"]].tolist()
        explained = [
            self._too_early(int(entries[index]), int(failing[index]), receptions) for index in chosen
        ]
        return log.weigh(log.messages[entries[broken]]), explained

    def _failing(self, entries: Array, receptions: Array) -> Array:
        """For each declaration, the first site by name that did not hold the message yet, or -1."""
        log = self.log
        declaring = (np.searchsorted(log.starts, entries, "right") - 1).astype(np.int32)
        name_rank = np.argsort(np.argsort(np.array(log.sites, dtype=object), kind="stable"))
        by_message = np.searchsorted(log.messages[entries], np.arange(log.message_count + 1))
        failing = np.full(len(entries), -1, np.int32)
        stability.judge_by_own_logs(
            entries,
            declaring,
            log.messages,
            log.starts,
            receptions,
            log.destination_set,
            log.sets,
            self.absent,
            name_rank,
            failing,
        )
        row = _sent_rows(log)
        sent_by = (np.searchsorted(log.starts, log.send_entry, "right") - 1).astype(np.int32)
        vectors = np.zeros((int(row.max(initial=-1)) + 1, log.logged), np.int32)
        if stability.sweep(log.kinds, log.messages, log.starts, row, sent_by, vectors):
            stability.raise_to_fixpoint(log.kinds, log.messages, log.starts, row, sent_by, vectors)
        stability.judge_by_happens_before(
            entries,
            declaring,
            by_message,
            log.kinds,
            log.messages,
            log.starts,
            row,
            sent_by,
            vectors,
            receptions,
            log.destination_set,
            log.sets,
            self.absent,
            name_rank,
            failing,
        )
        return failing

    def _too_early(self, entry: int, site: int, receptions: Array) -> Violation:
        log = self.log
        declared_by, step = log.place(entry)
        kind = KINDS[log.kinds[entry]]
        message = log.message_id(int(log.messages[entry]))
        rows = [Witness(declared_by, step, *message)]
        at = int(receptions[site, log.messages[entry]]) if site < log.logged else -1
        if at < 0:
            story = explain.never_received(declared_by, kind, step, message, log.sites[site])
        else:
            name, received_step = log.place(int(log.starts[site]) + at)
            story = explain.received_later(declared_by, kind, step, message, name, received_step)
            rows.append(Witness(name, received_step, *message))
        return Violation("stability", log.run.run, declared_by, *message, story, tuple(rows))

    def _search(
        self, name: Property, search: Callable[[Array], int], weigh: Callable[[Array], int]
    ) -> tuple[int, Array]:
        """Count with a kernel, and keep the violations to explain."""
        limit = self.limits[name]
        found = np.empty((limit or 0, 2), np.int64)
        count = search(found)
        explained = count if limit is None else min(count, limit)
        if count > len(found) and (limit is None or len(self.log.weights)):
            found = np.empty((count, 2), np.int64)
            search(found)
        return weigh(found[:count]) if len(found) >= count else count, found[:explained]

    def _of_deliveries(self, found: Array) -> int:
        return self.log.weigh(self.log.delivered[found[:, 0]])

    def _delivered_at(self, place: int) -> tuple[Site, int]:
        return self.log.place(int(self.log.delivery_entries[place]))

    def _witness(self, place: int) -> Witness:
        site, step = self._delivered_at(place)
        return Witness(site, step, *self.log.message_id(int(self.log.delivered[place])))


_JUDGES: Final[Mapping[Property, Callable[[Judge], tuple[int, list[Violation]]]]] = {
    "integrity": Judge.integrity,
    "duplicate": Judge.duplicate,
    "atomicity": Judge.atomicity,
    "fifo": Judge.fifo,
    "causal": Judge.causal,
    "total": Judge.total,
    "stability": Judge.stability,
    "pairwise": Judge.pairwise,
}


def _sent_rows(log: Log) -> Array:
    """Each sent message's row in a table of vectors; -1 for unsent messages."""
    sent = log.send_entry >= 0
    return np.where(sent, np.cumsum(sent) - 1, -1).astype(np.int32)


def _pasts(log: Log) -> tuple[Any, bool]:
    """The arrays that decide which message precedes which, and whether any precedes itself."""
    chain, rank, ends, chains = causality.send_ranks(log.kinds, log.messages, log.starts, log.send_entry)
    chains, first_home, homes = causality.unsent_chains(log.delivered, log.delivery_starts, chain, chains)
    row = _sent_rows(log)
    vectors = np.zeros((int(row.max(initial=-1)) + 1, chains), np.int32)
    arguments = (log.kinds, log.messages, log.starts, ends, row, chain, rank, first_home, homes, vectors)
    circular = causality.sweep(*arguments) > 0
    if circular:
        causality.raise_to_fixpoint(*arguments)
    return (row, chain, rank, first_home, homes, vectors), circular


def judge(
    log: Log, limits: Mapping[Property, int | None] | None = None, *, in_order: bool = True
) -> Judgement:
    """Judge a run; `limits` names the properties and bounds how many violations of each are explained.

    Without `in_order`, a spell of presence is judged by senders' numbers even if the run happens to be in one
    order, as short runs often are: for runs that do not promise total order.
    """
    return Judge(log, limits or dict.fromkeys(PROPERTIES), in_order).judgement()
