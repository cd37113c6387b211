"""Suspended Delivery in its sound form: contiguity inferred across own messages whose place is unknown.

Source: Konorski, section 6. An adapter does not hear what it transmits, so each own message looks like a
miss. The option infers contiguity nevertheless and suspends deliveries until reports tell where the own
messages stand. As printed it reports false marks. Here an inference (X, Y) made while own messages are
unlocated is provisional: it remembers them and is not reported. Once of each it is known whether it lies
before X, after Y or between, those between are what lies there, and nothing else: X, they in the order of
their sending, and Y are a chain of marked arcs. So a member also marks the arcs around its own messages.
"""

from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from antiphon.protocols.dpg.order import Order
from antiphon.protocols.dpg.pdus import Tag

MOST_PROVISIONAL: Final = 512
"""Inferences that wait. Raising it costs time with each report."""


class Provisional(NamedTuple):
    """Y came next after X, but for these own messages, in the order of their sending, any of which may lie
    between.
    """

    tail: Tag
    head: Tag
    own: tuple[Tag, ...]


class SuspendedDelivery:
    """The inferences of one member that wait for reports."""

    def __init__(self) -> None:
        self._waiting: deque[Provisional] = deque(maxlen=MOST_PROVISIONAL)

    def __len__(self) -> int:
        return len(self._waiting)

    def infer(self, tail: Tag, head: Tag, own: Iterable[Tag]) -> None:
        """Y came next after X as far as we can tell; `own` may lie between, in this order."""
        self._waiting.append(Provisional(tail, head, tuple(own)))

    def resolve(self, order: Order) -> None:
        """Turn what has become certain into marks."""
        for _ in range(len(self._waiting)):
            inference = self._waiting.popleft()
            if inference.head not in order.graph:
                continue
            own, is_certain = self._decide(order, inference)
            if not is_certain:
                self._waiting.append(inference._replace(own=own))
                continue
            for tail, head in pairwise((inference.tail, *own, inference.head)):
                if head in order.graph:
                    order.graph.connect(tail, head, marked=True)

    @staticmethod
    def _decide(order: Order, inference: Provisional) -> tuple[tuple[Tag, ...], bool]:
        """The own messages that do or may lie between, and whether all of them do."""
        tail, head, _ = inference
        left = []
        is_certain = True
        for own in inference.own:
            if order.is_known(own) and (order.before(own, tail) or order.before(head, own)):
                continue
            left.append(own)
            is_certain &= order.before(tail, own) and order.before(own, head)
        return tuple(left), is_certain

    def forget(self) -> None:
        self._waiting.clear()
