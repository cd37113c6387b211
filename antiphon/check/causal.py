"""Causal order, derived from the logs alone.

Everything that a site delivered or sent before a send precedes that send's message, and precedence is
transitive. A site violates causal order when it delivers m' and later some m that precedes m'. One violation
is counted for each (site, m'), however many such m there are.

The past of a message is a set of messages, kept as the bits of one integer. Impossible logs, such as a
delivery before its own send, may make messages precede one another in a cycle. Then each message of the cycle
has all the others in its past, and the definition is applied literally.
"""

from collections.abc import Iterator
from itertools import islice

from antiphon.check import explain
from antiphon.check.deliveries import witness
from antiphon.check.graphs import strong_components
from antiphon.check.history import Delivery, History
from antiphon.check.verdict import Violation
from antiphon.core.ids import MessageId, Site

Arcs = dict[MessageId, list[MessageId]]


def _direct_predecessors(history: History) -> Arcs:
    """For each message sent: the send before it at that site, and what was delivered between the two."""
    arcs: Arcs = {}
    for site, log in history.logs.items():
        since_send: dict[MessageId, None] = {}
        for place, (_, kind, message) in enumerate(log):
            if message is None:
                continue
            if kind == "deliver":
                since_send[message] = None
            elif kind == "send" and history.is_send(site, place, message):
                arcs[message] = list(since_send)
                since_send = {message: None}
    return arcs


class Pasts:
    """Each message's causal past as a set of bits."""

    def __init__(self, history: History) -> None:
        arcs = _direct_predecessors(history)
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
    pasts = Pasts(history)
    chains = Chains(history)
    violations: list[Violation] = []
    for site, deliveries in history.deliveries.items():
        broken: dict[MessageId, int] = {}
        later = 0
        for index in reversed(range(len(deliveries))):
            message = deliveries[index].message
            if pasts.past(message) & later & ~pasts.bit(message):
                broken[message] = index
            later |= pasts.bit(message)
        for index in sorted(broken.values()):
            past = pasts.past(deliveries[index].message) & ~pasts.bit(deliveries[index].message)
            causes = (
                cause for cause in islice(deliveries, index + 1, None) if pasts.bit(cause.message) & past
            )
            violations.append(_violation(history, chains, site, deliveries[index], next(causes)))
    return violations


def _violation(
    history: History, chains: "Chains", site: Site, effect: Delivery, cause: Delivery
) -> Violation:
    """`effect` is the first delivery of m' that some m in its past follows, and `cause` the first such m."""
    chain = chains.shortest(cause.message, effect.message)
    story = explain.causal(site, effect.message, effect.step, cause.message, cause.step, chain)
    rows = [witness(site, effect.step, effect.message), witness(site, cause.step, cause.message)]
    for link in chain:
        rows += [
            witness(link.site, link.before_step, link.before),
            witness(link.site, link.after_step, link.after),
        ]
    return Violation("causal", history.run, site, *effect.message, story, tuple(dict.fromkeys(rows)))


class Chains:
    """Shortest chains that show why one message precedes another, computed only for violations."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._known: dict[Site, dict[MessageId, int]] = {}
        for site, log in history.logs.items():
            known = self._known[site] = {}
            for place, (_, kind, message) in enumerate(log):
                if message is None or message in known:
                    continue
                if kind == "deliver" or (kind == "send" and history.is_send(site, place, message)):
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
        """Whether `before` was delivered or sent where `after` was sent, and earlier."""
        sending = self._history.sendings.get(after)
        return sending is not None and self._known[sending.site].get(before, sending.place) < sending.place

    def _newly_before(self, after: MessageId, searched: dict[Site, int]) -> Iterator[MessageId]:
        """Messages that the sender of `after` knew before that send and that were not searched yet."""
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
        step, kind, _ = self._history.logs[sending.site][self._known[sending.site][before]]
        verb = "sent" if kind == "send" else "delivered"
        return explain.Link(sending.site, verb, before, step, after, sending.step)
