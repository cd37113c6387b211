"""Deliveries under a sender's name that rest on another member's word, until the sender confirms them.

A retransmitted message may be forged. It is delivered all the same, since only a signature could tell. But
then its numbers are taken: the sender's own messages under them must not be delivered as well.
"""

from typing import Final

from antiphon.core.ids import Site

MOST_SENDERS: Final = 1024
"""Senders whose spans are remembered. Raising it costs memory."""
MOST_SPANS: Final = 64
"""Spans of a sender; more are merged, and what lies between is passed over. Raising it costs memory."""

Span = tuple[int, int, int]
"""An incarnation, the first number, and the number behind the last."""


class Unconfirmed(dict[Site, list[Span]]):
    """Delivered spans of numbers, by sender; empty while nothing is retransmitted."""

    def note(self, sender: Site, span: Span) -> None:
        """This was delivered."""
        incarnation, begin, end = span
        if sender not in self and len(self) >= MOST_SENDERS:
            del self[next(iter(self))]
        spans = self.setdefault(sender, [])
        if spans and spans[-1][0] == incarnation and spans[-1][2] == begin:
            spans[-1] = (incarnation, spans[-1][1], end)
            return
        spans.append(span)
        if len(spans) > MOST_SPANS:
            latest = max(incarnation for incarnation, _, _ in spans)
            ours = [(begin, end) for incarnation, begin, end in spans if incarnation == latest]
            self[sender] = [(latest, min(ours)[0], max(end for _, end in ours))]

    def holds(self, sender: Site, span: Span) -> bool:
        """Whether one of these numbers was delivered."""
        incarnation, begin, end = span
        return any(
            incarnation == other and begin < other_end and other_begin < end
            for other, other_begin, other_end in self.get(sender, ())
        )

    def reach(self, sender: Site, incarnation: int, number: int) -> None:
        """The sender itself has reached this number: nothing before it will be delivered any more."""
        spans = self.get(sender)
        if spans is None:
            return
        left = [span for span in spans if (span[0], span[2]) > (incarnation, number)]
        if left:
            self[sender] = left
        else:
            del self[sender]
