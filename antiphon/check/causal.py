"""Causal order, derived from the logs alone.

Everything that a site delivered or sent before a send precedes that send's message, and precedence is
transitive. A site violates causal order when it delivers m' and later some m that precedes m'. Only its first
delivery of each counts. One violation is counted for each (site, m'), however many such m there are. Rows of
one step are unordered: none of them precedes another. Precedence reaches across domains, but only messages
of one domain are compared.

The past of a message is a set of messages, kept as the bits of one integer. Impossible logs, such as a
delivery before its own send, may make messages precede one another in a cycle. Then each message of the cycle
has all the others in its past, and the definition is applied literally.

Precedence by receipt, as Tachikawa and Takizawa define it (section 2.1), also counts what a site had received
and not delivered yet before a send. Every pair that precedence by delivery orders it orders, too. A site that
goes absent may forget what it has received: where a site has absences, only its deliveries count.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from antiphon.check import explain
from antiphon.check.deliveries import witness
from antiphon.check.graphs import strong_components
from antiphon.check.history import Action, Delivery, History, by_step
from antiphon.check.verdict import Violation
from antiphon.core.ids import MessageId, Site
from antiphon.core.recording import Kind, Property

Arcs = dict[MessageId, list[MessageId]]
BY_DELIVERY: Final[frozenset[Kind]] = frozenset({"deliver"})
BY_RECEIPT: Final[frozenset[Kind]] = frozenset({"deliver", "receive"})
"""Rows by which a site learns of a message; a log without receive rows shows receipts by deliveries alone."""


def _learned_at(history: History, site: Site, learned: frozenset[Kind]) -> frozenset[Kind]:
    """The rows that count at a site."""
    return BY_DELIVERY if site in history.absentees else learned


def _direct_predecessors(history: History, learned: frozenset[Kind]) -> Arcs:
    """For each message sent: the sends of the step before it that has any, and what was learned of since."""
    arcs: Arcs = {}
    for site, log in history.logs.items():
        since_send: dict[MessageId, None] = {}
        counting = _learned_at(history, site, learned)
        for step in by_step(log):
            last_sent = [_link_sends(history, site, row, since_send, arcs) for row in step]
            sent = {message: None for message in last_sent if message is not None}
            since_send = sent or since_send
            for action in (action for row in step for action in row if action.kind in counting):
                assert action.message is not None, "such a row is about a message"
                since_send[action.message] = None
    return arcs


def _link_sends(
    history: History, site: Site, row: list[Action], before: Mapping[MessageId, None], arcs: Arcs
) -> MessageId | None:
    """Note what directly precedes each message that this row sends; return the last of them."""
    last: MessageId | None = None
    for action in row:
        message = action.message
        if action.kind == "send" and message is not None and history.is_send(site, action, message):
            arcs[message] = list(before) if last is None else [last]
            last = message
    return last


class Pasts:
    """Each message's causal past as a set of bits."""

    def __init__(self, history: History, learned: frozenset[Kind]) -> None:
        arcs = _direct_predecessors(history, learned)
        self._bits: dict[MessageId, int] = {}
        self._pasts: dict[MessageId, int] = {}
        for component in strong_components(arcs):
            self._settle(component, arcs)

    def _settle(self, component: list[MessageId], arcs: Arcs) -> None:
        """Compute the past that a component's messages share; components that it points to have come before.

        In a component of several messages, each directly precedes another, so the past has all their bits.
        """
        for message in component:
            self._bits[message] = 1 << len(self._bits)
        past = 0
        for message in component:
            for before in arcs.get(message, ()):
                past |= self._bits[before] | self._pasts.get(before, 0)
        for message in component:
            self._pasts[message] = past

    def bit(self, message: MessageId) -> int:
        """The bit of a message; 0 if it is in no message's past."""
        return self._bits.get(message, 0)

    def past(self, message: MessageId) -> int:
        return self._pasts.get(message, 0)


def check_causal(history: History) -> list[Violation]:
    """A site delivers m' before some m that precedes it."""
    return _check(history, "causal", BY_DELIVERY)


def check_causal_receipt(history: History) -> list[Violation]:
    """The same with precedence by receipt."""
    return _check(history, "causal-receipt", BY_RECEIPT)


def _check(history: History, name: Property, learned: frozenset[Kind]) -> list[Violation]:
    pasts = Pasts(history, learned)
    chains = Chains(history, learned)
    violations: list[Violation] = []
    for site, lane in history.lanes():
        for effect in _early(lane, pasts):
            past = pasts.past(effect.message)
            cause = next(
                cause for cause in lane if pasts.bit(cause.message) & past and effect.is_before(cause)
            )
            violations.append(_violation(history, name, chains, site, effect, cause))
    return violations


def _early(lane: list[Delivery], pasts: Pasts) -> list[Delivery]:
    """Deliveries that some message of their past follows, in order."""
    found: list[Delivery] = []
    later = 0
    for step in reversed(by_step(lane)):
        delivered_here = 0
        for row in step:
            after = later
            for delivery in reversed(row):
                if pasts.past(delivery.message) & after:
                    found.append(delivery)
                after |= pasts.bit(delivery.message)
            delivered_here |= after
        later |= delivered_here
    return sorted(found, key=lambda delivery: delivery.place)


def _violation(
    history: History, name: Property, chains: "Chains", site: Site, effect: Delivery, cause: Delivery
) -> Violation:
    """`cause` is the first delivery after `effect` of a message in its past."""
    chain = chains.shortest(cause.message, effect.message)
    story = explain.causal(site, effect.message, effect.step, cause.message, cause.step, chain)
    rows = [witness(site, effect.step, effect.message), witness(site, cause.step, cause.message)]
    for link in chain:
        rows += [
            witness(link.site, link.before_step, link.before),
            witness(link.site, link.after_step, link.after),
        ]
    return Violation(name, history.run, site, *effect.message, story, tuple(dict.fromkeys(rows)))


class Chains:
    """Shortest chains that show why one message precedes another, computed only for violations."""

    def __init__(self, history: History, learned: frozenset[Kind]) -> None:
        self._history = history
        self._known: dict[Site, dict[MessageId, int]] = {}
        for site, log in history.logs.items():
            known = self._known[site] = {}
            counting = _learned_at(history, site, learned)
            for place, action in enumerate(log):
                kind, message = action.kind, action.message
                if message is None or message in known:
                    continue
                if kind in counting or (kind == "send" and history.is_send(site, action, message)):
                    known[message] = place
        self._order = {site: list(known) for site, known in self._known.items()}

    def shortest(self, cause: MessageId, effect: MessageId) -> list[explain.Link]:
        """A shortest chain of sends from cause to effect: breadth first, backwards from the effect's send.

        The messages that a site knew before a send are a prefix of all that it knew; no prefix is searched
        twice.
        """
        after_of: dict[MessageId, MessageId] = {}
        searched: dict[Site, int] = {}
        frontier = [effect]
        while True:
            assert frontier, "the cause is in the past of the effect, so a chain leads there"
            for after in frontier:
                if self._is_before(cause, after):
                    return self._links(cause, after, effect, after_of)
            following: list[MessageId] = []
            for after in frontier:
                for before in self._newly_before(after, searched):
                    if before not in after_of:
                        after_of[before] = after
                        following.append(before)
            frontier = following

    def _is_before(self, before: MessageId, after: MessageId) -> bool:
        """Whether `before` was learned of or sent where `after` was sent, and earlier."""
        sending = self._history.sendings.get(after)
        if sending is None or before not in self._known[sending.site]:
            return False
        place = self._known[sending.site][before]
        action = self._history.logs[sending.site][place]
        return action.step < sending.step or (action.row == sending.row and place < sending.place)

    def _newly_before(self, after: MessageId, searched: dict[Site, int]) -> Iterator[MessageId]:
        """Messages that the sender of `after` knew before that send and that were not searched yet.

        Others of the same row need not be searched: what precedes them precedes `after` directly.
        """
        sending = self._history.sendings.get(after)
        if sending is None:
            return
        order = self._order[sending.site]
        begin = searched.get(sending.site, 0)
        while begin < len(order) and self._is_before(order[begin], after):
            yield order[begin]
            begin += 1
        searched[sending.site] = begin

    def _links(
        self, cause: MessageId, after: MessageId, effect: MessageId, after_of: dict[MessageId, MessageId]
    ) -> list[explain.Link]:
        chain = [self._link(cause, after)]
        while after != effect:
            before, after = after, after_of[after]
            chain.append(self._link(before, after))
        return chain

    def _link(self, before: MessageId, after: MessageId) -> explain.Link:
        sending = self._history.sendings[after]
        action = self._history.logs[sending.site][self._known[sending.site][before]]
        verb = explain.VERBS[action.kind]
        return explain.Link(sending.site, verb, before, action.step, after, sending.step)
