"""A site's own batches: numbered when they are admitted, kept until all for whom they are hold them.

First in, first out holds across groups too. Two messages of one sender to groups with a common member go to
that member in the order of their numbers: where both go to the same primary site it orders them as they come;
where they go to different ones, the second waits until the first is stable. That costs nothing to a sender
that stays with one group, or whose groups have no common member.

Causal order across groups (`causal`) needs little more. What a site has delivered, all for whom it is hold
already, in their streams: so whatever the site sends after that stands behind it there. What is left is what
a sender itself sent before: then it waits whenever it turns to another primary site, common member or not,
since whoever gets the second message may answer to those who are still to get the first.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from antiphon.core.effects import Effect, Multicast, Send, Stable
from antiphon.core.ids import Group, Site
from antiphon.core.packing import Packed
from antiphon.core.time import Nanoseconds
from antiphon.protocols.metagroups.channels import Batch
from antiphon.protocols.metagroups.pdus import (
    Body,
    Item,
    Life,
    MetaGroupsConfiguration,
    Query,
    Request,
    Taken,
    TokenRequest,
)
from antiphon.protocols.metagroups.table import Tree


class Own:
    """One own batch that is not stable."""

    __slots__ = ("batch", "node", "sent_ns", "seq")

    def __init__(self, batch: Batch, node: int) -> None:
        self.batch = batch
        self.node = node
        self.seq = 0
        """Its number among this site's requests to that node; 0 as long as it waits."""
        self.sent_ns: Nanoseconds = 0


class Outbox:
    """Own batches to the groups of one tree."""

    def __init__(
        self,
        site: Site,
        life: Life,
        tree: Tree,
        configuration: MetaGroupsConfiguration,
        effects: list[Effect],
    ) -> None:
        self._site: Final = site
        self._life: Final = life
        self._tree: Final = tree
        self._effects: Final = effects
        self._is_direct: Final = configuration.bodies == "direct"
        self._is_causal: Final = configuration.causal
        self._own: dict[int, Own] = {}
        """By number, in that order."""
        self._seqs: dict[int, int] = {}
        self._accepted: dict[int, int] = {}
        self._waiting = 0
        self.repeated = 0

    def __len__(self) -> int:
        return len(self._own)

    def admit(self, number: int, group: Group, bodies: Packed) -> None:
        batch = Batch(self._site, self._life[0], number, len(bodies), group, bodies)
        self._own[number] = Own(batch, self._tree.entry[group])
        self._waiting += 1

    def due(self, now: Nanoseconds, limit: int | None = None) -> Iterator[Own]:
        """Those that may be sent now and were not, of numbers below a limit; whoever takes one sends it."""
        earlier: list[Own] = []
        for own in list(self._own.values()):
            if limit is not None and own.batch.number >= limit:
                return
            if not own.seq and not any(self._holds_up(other, own) for other in earlier):
                self._waiting -= 1
                own.seq = self._seqs[own.node] = self._seqs.get(own.node, 0) + 1
                own.sent_ns = now
                yield own
            earlier.append(own)

    def _holds_up(self, earlier: Own, own: Own) -> bool:
        if earlier.seq and earlier.node == own.node:
            return False
        return self._is_causal or self._tree.overlap(earlier.batch.group, own.batch.group)

    def request(self, own: Own) -> None:
        """Send one to its primary site."""
        tree, batch = self._tree.id, own.batch
        assert batch.bodies is not None, "own batches have their bodies"
        where = (tree, own.node, self._life, own.seq, batch.number)
        pdu = (
            TokenRequest(*where, batch.length, batch.group)
            if self._is_direct
            else Request(*where, batch.group, batch.bodies)
        )
        self._effects.append(Send(self._tree.nodes[own.node].primary, pdu))

    def multicast_body(self, own: Own, to: Iterable[Site]) -> None:
        """Where bodies go directly: send one to these."""
        batch, others = own.batch, tuple(sorted(site for site in to if site != self._site))
        assert batch.bodies is not None, "own batches have their bodies"
        if others:
            body = Body(self._tree.id, self._life, batch.number, batch.group, batch.bodies)
            self._effects.append(Multicast(body, others))

    def members(self, own: Own) -> frozenset[Site]:
        """For whom one is."""
        return self._tree.members[own.batch.group]

    def take(self, sender: Site, pdu: Taken) -> bool:
        """A primary site has told how far it has got; False if that cannot be."""
        is_told = pdu.node < len(self._tree.nodes) and self._tree.nodes[pdu.node].primary == sender
        if not is_told or pdu.accepted > self._seqs.get(pdu.node, 0):
            return False
        self._accepted[pdu.node] = max(pdu.accepted, self._accepted.get(pdu.node, 0))
        self.settle(pdu.node, pdu.stable)
        return True

    @property
    def may_send(self) -> bool:
        """Whether anything waits."""
        return self._waiting > 0

    def waiting_for(self) -> Iterator[tuple[Site, int]]:
        """For each own batch that is not stable, in order: its primary site, and its messages."""
        for own in list(self._own.values()):
            yield self._tree.nodes[own.node].primary, own.batch.length

    @property
    def first(self) -> int | None:
        """The first number that is not stable."""
        return next(iter(self._own), None)

    @property
    def last(self) -> int | None:
        """The last one."""
        return next(reversed(self._own), None)

    def settle(self, node: int, stable: int) -> None:
        """Requests to a node are stable up to here."""
        done = [own for own in self._own.values() if own.node == node and 0 < own.seq <= stable]
        for own in done:
            self.forget(own.batch.number)

    def forget(self, number: int) -> bool:
        """An own batch is stable; False if that was known."""
        own = self._own.pop(number, None)
        if own is None:
            return False
        self._waiting -= not own.seq
        batch = own.batch
        self._effects.append(Stable(self._site, batch.number, batch.length, batch.group))
        return True

    def repeat(self, now: Nanoseconds, after_ns: Nanoseconds) -> None:
        """Send again what was not taken for so long, and ask about what was taken and is not stable."""
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
                self._effects.append(Send(primary, Query(self._tree.id, own.node, self._life)))

    # When the tree ends

    def items(self) -> tuple[Item, ...]:
        return tuple(own.batch.item for own in self._own.values())

    def find(self, number: int) -> Batch | None:
        own = self._own.get(number)
        return None if own is None else own.batch
