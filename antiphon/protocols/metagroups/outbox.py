"""A site's own batches: numbered when they are admitted, kept until every destination holds them.

FIFO order holds across groups too. Two messages of one sender to groups with a common member reach that
member in the order of their numbers. If both go to the same primary site, it orders them as they come. If
they go to different ones, the second waits until the first is stable. That costs nothing to a sender that
stays with one group, or whose groups have no common member.

Causal order across groups (`causal`) needs little more. When a site has delivered a message, every
destination already holds it in its stream; so whatever the site sends afterwards stands behind it there. What
remains is what the sender itself sent before. So it waits whenever it turns to another primary site, common
member or not: a receiver of the second message may answer to sites that do not have the first yet.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from antiphon.core.effects import Multicast, Send, Stable
from antiphon.core.ids import Group, Site
from antiphon.core.packing import Packed
from antiphon.core.time import Nanoseconds
from antiphon.protocols.metagroups.channels import Batch
from antiphon.protocols.metagroups.context import Context
from antiphon.protocols.metagroups.pdus import (
    Body,
    Item,
    Query,
    Request,
    Session,
    Taken,
    TokenRequest,
)
from antiphon.protocols.metagroups.view import Tree


class OwnBatch:
    """An own batch that is not stable."""

    __slots__ = ("batch", "node", "sent_ns", "seq")

    def __init__(self, batch: Batch, node: int) -> None:
        self.batch = batch
        self.node = node
        self.seq = 0
        """Its number among this site's requests to that node; 0 while it waits."""
        self.sent_ns: Nanoseconds = 0


class Outbox:
    """Own batches to the groups of one tree."""

    def __init__(self, context: Context, session: Session, tree: Tree) -> None:
        self._site: Final = context.site
        self._session: Final = session
        self._tree: Final = tree
        self._effects: Final = context.effects
        self._is_direct: Final = context.configuration.bodies == "direct"
        self._is_causal: Final = context.configuration.causal
        self._most_requests: Final = context.configuration.requests
        self._own: dict[int, OwnBatch] = {}
        """By number, in that order."""
        self._seqs: dict[int, int] = {}
        self._accepted: dict[int, int] = {}
        self._waiting = 0
        self._is_stuck = False
        """Whether no batch may be sent until another one is admitted, accepted or stable."""
        self.repeated = 0

    def __len__(self) -> int:
        return len(self._own)

    def admit(self, number: int, group: Group, bodies: Packed, moves: int) -> None:
        batch = Batch(self._site, self._session[0], number, len(bodies), group, bodies, moves)
        self._own[number] = OwnBatch(batch, self._tree.entry[group])
        self._waiting += 1
        self._is_stuck = False

    def due(self, now: Nanoseconds, limit: int | None = None) -> Iterator[OwnBatch]:
        """Batches that may be sent now, with numbers below a limit; the caller sends each."""
        self._is_stuck = not self._is_causal
        earlier: set[tuple[int | None, Group]] = set()
        for own in list(self._own.values()):
            if limit is not None and own.batch.number >= limit:
                return
            if not own.seq and self._has_room and not any(self._holds_up(*each, own) for each in earlier):
                self._waiting -= 1
                own.seq = self._seqs[own.node] = self._seqs.get(own.node, 0) + 1
                own.sent_ns = now
                yield own
            earlier.add((own.node if own.seq else None, own.batch.group))

    @property
    def _has_room(self) -> bool:
        """Whether one more batch may be on its way to a primary site."""
        return sum(self._seqs.values()) - sum(self._accepted.values()) < self._most_requests

    def _holds_up(self, node: int | None, group: Group, own: OwnBatch) -> bool:
        """Whether an earlier batch to a group holds up this one; its node is None if it waits itself."""
        if node == own.node:
            return False
        return self._is_causal or self._tree.overlap(group, own.batch.group)

    def request(self, own: OwnBatch) -> None:
        """Send a batch to its primary site."""
        tree, batch = self._tree.id, own.batch
        assert batch.bodies is not None, "own batches have their bodies"
        where = (tree, own.node, self._session, own.seq, batch.number)
        pdu = (
            TokenRequest(*where, batch.length, batch.group)
            if self._is_direct
            else Request(*where, batch.group, batch.bodies, batch.moves)
        )
        self._effects.append(Send(self._tree.nodes[own.node].primary, pdu))

    def multicast_body(self, own: OwnBatch, to: Iterable[Site]) -> None:
        """With direct bodies: send a batch to these sites."""
        batch, others = own.batch, tuple(sorted(site for site in to if site != self._site))
        assert batch.bodies is not None, "own batches have their bodies"
        if others:
            body = Body(self._tree.id, self._session, batch.number, batch.group, batch.bodies)
            self._effects.append(Multicast(body, others))

    def members(self, own: OwnBatch) -> frozenset[Site]:
        """The destinations of a batch."""
        return self._tree.members[own.batch.group]

    def on_taken(self, sender: Site, pdu: Taken) -> bool:
        """A primary site acknowledges requests; False if that is impossible."""
        is_primary = pdu.node < len(self._tree.nodes) and self._tree.nodes[pdu.node].primary == sender
        if not is_primary or pdu.accepted > self._seqs.get(pdu.node, 0):
            return False
        self.on_accepted(pdu.node, pdu.accepted)
        self.on_stable(pdu.node, pdu.stable)
        return True

    def on_accepted(self, node: int, accepted: int) -> None:
        """A primary site has the requests up to this one."""
        if accepted > self._accepted.get(node, 0):
            self._accepted[node] = accepted
            self._is_stuck = False

    @property
    def is_used(self) -> bool:
        """Whether anything was ever admitted to it."""
        return bool(self._own or self._seqs)

    @property
    def may_send(self) -> bool:
        """Whether anything waits, and perhaps not for what is already known."""
        return self._waiting > 0 and not self._is_stuck

    def waiting_for(self) -> Iterator[tuple[Site, int]]:
        """For each batch, in order: its primary site, and its number of messages."""
        for own in list(self._own.values()):
            yield self._tree.nodes[own.node].primary, own.batch.length

    @property
    def first(self) -> int | None:
        """The first number that is not stable."""
        return next(iter(self._own), None)

    @property
    def oldest_moves(self) -> int:
        """The moves that were known when the first batch that is not stable was admitted."""
        return next(iter(self._own.values())).batch.moves

    @property
    def last(self) -> int | None:
        """The last number that is not stable."""
        return next(reversed(self._own), None)

    def on_stable(self, node: int, stable: int) -> None:
        """The requests to a node are stable up to this one."""
        done = [own for own in self._own.values() if own.node == node and 0 < own.seq <= stable]
        for own in done:
            self.forget(own.batch.number)

    def forget(self, number: int) -> None:
        """A batch is stable, if it was not before."""
        own = self._own.pop(number, None)
        if own is not None:
            self._is_stuck = False
            self._waiting -= not own.seq
            batch = own.batch
            self._effects.append(Stable(self._site, batch.number, batch.length, batch.group))

    def repeat(self, now: Nanoseconds, after_ns: Nanoseconds) -> None:
        """After this time, send again what was not accepted, and ask about what is not stable yet."""
        asked: set[int] = set()
        for own in self._own.values():
            primary = self._tree.nodes[own.node].primary
            if not own.seq or primary == self._site or now - own.sent_ns < after_ns:
                continue
            if own.seq > self._accepted.get(own.node, 0):
                own.sent_ns = now
                self.repeated += 1
                if self._is_direct:
                    self.multicast_body(own, (primary,))
                self.request(own)
            elif own.node not in asked:
                asked.add(own.node)
                self._effects.append(Send(primary, Query(self._tree.id, own.node, self._session)))

    # When the tree ends

    def items(self) -> tuple[Item, ...]:
        return tuple(own.batch.item for own in self._own.values())

    def find(self, number: int) -> Batch | None:
        own = self._own.get(number)
        return None if own is None else own.batch
