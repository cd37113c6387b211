"""The late-join handler: a member that keeps what was delivered in a log, and gives it to newcomers.

Source: K. Guo, sections 2.2.1 and 3.2: a few members keep everything for as long as the application wishes,
whatever stability says, and bring late joiners to the present. The text leaves the way open; ours is this.

The log itself belongs to the driver, which writes into it whatever is delivered here and reads it when it is
asked to (`Recall`, answered by `Recalled`). A newcomer asks all who keeps history, chooses the handler that
has most of it, and reads that one's log in order, a bounded piece at a time: that is told in `catching_up`.
Requests carry all that a handler must know, so a handler remembers nothing of those whom it serves, save
the request that it is about to answer; one that was restarted goes on where it was.

Assumes: what is delivered here is logged before the next `Recall` is answered.
Guarantees: an answer tells truly what this member will still log of what was wanted. Work and memory are
bounded: one request of each member that counts, for so many members at a time.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from antiphon.core.effects import Recall, Send
from antiphon.core.ids import Site
from antiphon.core.inputs import Recalled
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.fifo.pdus import Chunk, Fetch, Inquire, Offer, Place
from antiphon.protocols.fifo.state import State

CHUNK_BYTES: Final = 60_000
"""Bodies in one answer at most, unless one batch is longer: about what fits a datagram."""
MOST_ASKERS: Final = 64
"""Members whose requests are under way at a time; others ask again."""

Answer = Callable[[Nanoseconds, Site, Pdu], None]


class HistoryRole(NamedTuple):
    """A member's part in bringing late joiners to the present."""

    keeps: bool = False
    """Whether its driver keeps a log of what is delivered here."""
    catches_up: bool = False
    """Whether it wants the history when it begins."""


NO_HISTORY: Final = HistoryRole()


class Request(NamedTuple):
    """What is about to be answered."""

    asker: Site
    pdu: Inquire | Fetch
    behind: tuple[Site, ...]


class Keeper:
    """Answers newcomers out of this member's log; this member's own catching up is one of them."""

    def __init__(self, state: State, answer_own: Answer) -> None:
        self._state = state
        self._answer_own = answer_own
        self.lags = False
        """Whether what is received here is not delivered yet, so that the log says nothing of the present."""
        self._requests: dict[int, Request] = {}
        self._tokens: dict[Site, int] = {}
        self._next_token = 0

    def asked(self, asker: Site, pdu: Inquire | Fetch) -> None:
        """Look up what a member that counts asks for; whatever it asked before is settled by that."""
        state = self._state
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
            state.effects.append(Recall(token, pdu.position, CHUNK_BYTES, have, asker))
        else:
            self._requests[token] = Request(asker, pdu, ())
            state.effects.append(Recall(token, 0, 0, asker=asker))

    def _serves(self, asker: Site, pdu: Inquire | Fetch) -> bool:
        state = self._state
        if asker == state.site:
            return True
        peer = state.peers.get(asker)
        known = peer is not None and peer.counted and peer.incarnation == pdu.incarnation
        return known and state.taking_part and not self.lags

    def _behind(self, wanted: tuple[Place, ...]) -> tuple[Site, ...]:
        """Of which sites something is still to be delivered here, and so logged, that is wanted."""
        return tuple(place.site for place in wanted if self._will_deliver(place))

    def _will_deliver(self, place: Place) -> bool:
        state = self._state
        stream = state.find_stream(place.site, place.incarnation)
        if stream is None or not stream.begun:
            return False
        if stream is state.own:
            return state.own.delivered < place.number
        peer = state.peers[place.site]
        return stream is peer.successor or (stream is peer.stream and stream.expected < place.number)

    def reset(self) -> None:
        """Whatever was asked is not answered any more."""
        self._requests.clear()
        self._tokens.clear()

    def recalled(self, now: Nanoseconds, event: Recalled) -> None:
        """The log has been read: hand it on. A log that cannot be read any more is no offer."""
        request = self._requests.pop(event.token, None)
        if request is None:
            return
        asker, pdu, behind = request
        del self._tokens[asker]
        if event.messages < 0:
            return
        incarnation = self._state.incarnation
        answer: Offer | Chunk
        if type(pdu) is Fetch:
            answer = Chunk(incarnation, pdu.serial, event.following, event.is_end, behind, event.records)
        else:
            answer = Offer(incarnation, event.messages)
        if asker == self._state.site:
            self._answer_own(now, asker, answer)
        else:
            self._state.counts["history_answers"] += 1
            self._state.effects.append(Send(asker, answer))
