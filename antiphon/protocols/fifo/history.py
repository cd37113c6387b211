"""The late-join handler: a member that keeps what was delivered in a log, and serves it to newcomers.

Source: K. Guo, sections 2.2.1 and 3.2: a few members keep everything for as long as the application wishes,
also after it is stable, and bring late joiners to the present. The text leaves the way open; ours is this.

The log belongs to the driver, which writes into it everything that is delivered here and reads it when asked
to (`Recall`, answered by `Recalled`). A newcomer asks all members which of them keep history, chooses the
handler that has most of it, and reads its log in order, in bounded pieces (`history_reader`). Requests carry
all that a handler must know, so a handler remembers only the request that it is about to answer, and a
handler that was restarted goes on where it was.

Assumes: what is delivered here is logged before the next `Recall` is answered.
Guarantees: an answer tells truly what this member will still log of what was wanted. Work and memory are
bounded: one request of each member of the view, for `MOST_ASKERS` members at a time.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from antiphon.core.effects import Recall, Send
from antiphon.core.ids import Site
from antiphon.core.inputs import Recalled
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.fifo.context import Context
from antiphon.protocols.fifo.group import Group
from antiphon.protocols.fifo.pdus import Chunk, Fetch, Inquire, Offer, Place
from antiphon.protocols.fifo.presence import Presence

CHUNK_BYTES: Final = 60_000
"""Bytes of bodies in one answer, unless one batch is longer: about what fits a datagram. Raising it costs
memory at both ends."""
MOST_ASKERS: Final = 64
"""Members served at a time; others ask again. Raising it costs memory."""

Answer = Callable[[Nanoseconds, Site, Pdu], None]


class HistoryRole(NamedTuple):
    """What a member does for history."""

    keeps: bool = False
    """Whether its driver keeps a log of what is delivered here."""
    catches_up: bool = False
    """Whether it wants the history when it begins."""


NO_HISTORY: Final = HistoryRole()


class Request(NamedTuple):
    """A request that is about to be answered."""

    asker: Site
    pdu: Inquire | Fetch
    behind: tuple[Site, ...]


class HistoryServer:
    """Answers newcomers out of this member's log, and this member's own history reader."""

    def __init__(self, context: Context, group: Group, presence: Presence, answer_own: Answer) -> None:
        self._context = context
        self._group = group
        self._presence = presence
        self._answer_own = answer_own
        self.lags = False
        """Whether this member itself still reads history, so that its log does not reach the present."""
        self._requests: dict[int, Request] = {}
        self._tokens: dict[Site, int] = {}
        self._next_token = 0

    def on_request(self, asker: Site, pdu: Inquire | Fetch) -> None:
        """Look up what a member of the view asks for; a new request replaces an earlier one."""
        if not self._serves(asker, pdu):
            return
        before = self._tokens.get(asker)
        if before is None and len(self._tokens) >= MOST_ASKERS:
            return
        if before is not None:
            if self._requests[before].pdu == pdu:
                return  # the answer is on its way
            del self._requests[before]
        token = self._next_token = self._next_token + 1
        self._tokens[asker] = token
        if type(pdu) is Fetch:
            self._requests[token] = Request(asker, pdu, self._behind(pdu.wanted))
            have = tuple((place.site, place.incarnation, place.number) for place in pdu.have)
            self._context.emit(Recall(token, pdu.position, CHUNK_BYTES, have, asker))
        else:
            self._requests[token] = Request(asker, pdu, ())
            self._context.emit(Recall(token, 0, 0, asker=asker))

    def _serves(self, asker: Site, pdu: Inquire | Fetch) -> bool:
        if asker == self._context.site:
            return True
        peer = self._group.peers.get(asker)
        known = peer is not None and peer.in_view and peer.incarnation == pdu.incarnation
        return known and self._presence.taking_part and not self.lags

    def _behind(self, wanted: tuple[Place, ...]) -> tuple[Site, ...]:
        """The sites of which something that is wanted will still be delivered here, and so logged."""
        return tuple(place.site for place in wanted if self._will_deliver(place))

    def _will_deliver(self, place: Place) -> bool:
        group = self._group
        stream = group.find_stream(place.site, place.incarnation)
        if stream is None or not stream.begun:
            return False
        if stream is group.own:
            return group.own.delivered < place.number
        peer = group.peers[place.site]
        return stream is peer.successor or (stream is peer.stream and stream.expected < place.number)

    def reset(self) -> None:
        """Drop all requests."""
        self._requests.clear()
        self._tokens.clear()

    def answer(self, now: Nanoseconds, event: Recalled) -> None:
        """The driver has read the log: send the answer, or none if the log cannot be read any more."""
        request = self._requests.pop(event.token, None)
        if request is None:
            return
        asker, pdu, behind = request
        del self._tokens[asker]
        if event.messages < 0:
            return
        incarnation = self._context.incarnation
        answer: Offer | Chunk
        if type(pdu) is Fetch:
            answer = Chunk(incarnation, pdu.serial, event.following, event.is_end, behind, event.records)
        else:
            answer = Offer(incarnation, event.messages)
        if asker == self._context.site:
            self._answer_own(now, asker, answer)
        else:
            self._context.counts["history_answers"] += 1
            self._context.emit(Send(asker, answer))
