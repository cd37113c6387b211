"""What was delivered under a sender's name on another's word, until the sender has come so far itself.

A remulticast message may be forged. It is delivered all the same, since only a signature could tell. But then
its numbers are taken: what the sender itself has under them must not be delivered as well.
"""

from typing import Final

from antiphon.core.ids import Site

MOST_SENDERS: Final = 1024
"""Senders of whom spans are remembered. Raising it costs memory."""
MOST_SPANS: Final = 64
"""Separate spans of numbers of one sender; more are taken for one, which may pass over what is between."""

Span = tuple[int, int, int]
"""An incarnation, the first number, and the one behind the last."""


class Foretold(dict[Site, list[Span]]):
    """Spans of numbers that were delivered by sender; there are none as long as nothing is remulticast."""

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
        """The sender itself has come so far: whatever lies before that will not be delivered any more."""
        spans = self.get(sender)
        if spans is None:
            return
        left = [span for span in spans if (span[0], span[2]) > (incarnation, number)]
        if left:
            self[sender] = left
        else:
            del self[sender]
