"""FullDist: every member multicasts what it holds, and each finds the minimum itself.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 4.2.2; its scattered form: 5.4.3.
The first member multicasts its row, the others multicast theirs when the first row of the round reaches them.
A member that has all rows takes the least of each column. Scattered, a member waits a random time
before it multicasts, so that the rows do not meet in the network all at once.

Assumes: a failure detector that reports crashes by Suspected and Restored, and an owner that reports what is
held. Nothing is assumed of the network: PDUs may be lost, repeated and reordered.
Guarantees: a member declares stable only what it holds itself and what every member holds that was not
suspected by it or, if it received the result, by the member that found it (checker: stability); what has been
declared is never taken back; a round that was triggered ends at every member once PDUs get through and the
crashed are suspected.

Deviations from the text, and why:
- Those of all the protocols (`antiphon.protocols.stability.base`, `numbered`).
- The text's members keep a matrix of n rows. Here they keep which rows have come, and the rows only until a
  few hundred of them are folded into the minimum: the same result in n bytes and m counts.
- The text's members multicast periodically, so that a later row makes up for a lost one. Here a member that
  lacks rows asks one of their members, at growing pauses, and both send the other the least of all rows that
  they have, with a bitmap of the members covered; a member that knows the result answers with it. Where links
  lose PDUs because buffers are full, n(n-1) rows asked for one by one would only fill them again. Without
  repetition a round sends what the text counts and nothing else.
- No member takes over from a member that crashes after it has begun a round: any member that knows the round
  carries it on. Suspected members are not waited for, and completion is tested on suspicion too (G8).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from random import Random
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from antiphon.core.effects import CancelTimer, Effect, Multicast, Send, SetTimer
from antiphon.core.errors import UsageError
from antiphon.core.fields import Hash, Number
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.base import Bitmap, Configuration, CountBytes, Counts, read_counts
from antiphon.protocols.stability.numbered import Numbered

FOLD_ROWS: Final = 256
"""How many rows are folded into the minimum at once: more are faster and take more memory."""

ASK: Final = "ask"
"""Ask a member whose row is missing."""
SPEAK: Final = "speak"
"""In the scattered form: multicast our row."""


class Purpose(IntEnum):
    """What the counts of a row are, and what its sender wants."""

    TELL = 0
    """What the sender holds, or the least of several rows."""
    ASK = 1
    """The same; its sender lacks rows."""
    RESULT = 2
    """What all hold."""


class Row(Pdu, frozen=True, gc=False):
    """INFO: a count for each sender of messages.

    `heard` is a bitmap, by rank, of the members whose rows are in the counts; empty if only the sender's is.
    """

    code: ClassVar[int] = 19
    round: Number
    counts: CountBytes
    purpose: Purpose = Purpose.TELL
    heard: Bitmap = b""
    view: Hash = 0


PDUS: Final = (Row,)


@dataclass(frozen=True, kw_only=True)
class FullDistConfiguration(Configuration):
    """The knobs of FullDist."""

    scatter_ns: Nanoseconds = 0
    """Each member multicasts at a random moment of this time. Longer ones make rounds longer and
    queues shorter. Scattered members may each be triggered by a clock of its own."""

    def __post_init__(self) -> None:
        if self.scatter_ns < 0:
            raise UsageError("Rows cannot be scattered over less than no time.")


class FullDist(Numbered):
    """One member's part. Its owner reports what is held with `hold`, and forwards inputs and effects."""

    __slots__ = ("_finished", "_heard", "_joined", "_least", "_missing", "_rows", "_scatter_ns", "_spoken")

    def __init__(
        self,
        site: Site,
        members: Sequence[Site],
        senders: Sequence[Site],
        configuration: FullDistConfiguration | None = None,
        random: Random | None = None,
    ) -> None:
        knobs = configuration or FullDistConfiguration()
        super().__init__(site, members, senders, knobs, random)
        if knobs.scatter_ns and random is None:
            raise UsageError("Scattered rows need a source of randomness.")
        self._scatter_ns = knobs.scatter_ns
        self._joined = False
        """Whether the result of the round is not known here yet."""
        self._spoken = True
        """Whether our row of the round has been multicast."""
        self._heard = bytearray(0)
        """By rank, which rows of this round have come, our own included."""
        self._missing = 0
        """How many rows of members that are not suspected have not come."""
        self._rows: list[bytes] = []
        self._least: Counts | None = None
        self._finished: Row | None = None

    @property
    def under_way(self) -> bool:
        """Whether a round that this member knows has not ended here."""
        return self._joined

    def abandon(self) -> None:
        self._joined = False

    def _on_pdu(self, sender: Site, pdu: Pdu) -> list[Effect]:
        if type(pdu) is not Row or not self._are_counts(pdu.counts):
            return self._ignore()
        if pdu.purpose == Purpose.RESULT:
            return self._on_result(pdu)
        if pdu.round != self._round:
            return self._on_other_round(sender, pdu)
        return self._on_row(sender, pdu) if self._joined else self._answer(sender, pdu)

    # Step 1: the first member multicasts its row

    def _on_trigger(self) -> list[Effect]:
        if self._scatter_ns and self.coordinator != self.site:
            # Members that multicast by clocks of their own all mean the same round.
            return [] if self._joined else self._join(self._next_number(self.coordinator))
        return super()._on_trigger()

    def _begin(self) -> list[Effect]:
        self._again = False
        return self._join(self._next_number(self.site))

    def _join(self, number: int) -> list[Effect]:
        """Take part in a round: multicast our row, and wait for the others'."""
        if self._joined and self._owner(self._round) == self.site:
            self._again = True
        size, suspected = len(self._order), len(self._suspected)
        self._round, self._joined, self._least = number, True, None
        self._heard = bytearray(size)
        self._heard[self._rank[self.site]] = 1
        self._missing = size - 1 - suspected
        self._rows.clear()
        effects = self._speak_in_time() if size > 1 else []
        if not self._missing:
            return effects + self._finish()
        return effects + self._first_wait(ASK, self._for_answers, self._scatter_ns)

    def _speak_in_time(self) -> list[Effect]:
        self._spoken = False
        if not self._scatter_ns:
            return self._speak()
        assert self._random is not None, "who scatters has a source of randomness"
        return [SetTimer(SPEAK, self._random.randrange(self._scatter_ns))]

    def _speak(self) -> list[Effect]:
        self._spoken = True
        return [Multicast(Row(self._round, self._held.tobytes(), view=self._view))]

    # Step 2: the others multicast theirs, and every member collects

    def _on_row(self, sender: Site, pdu: Row) -> list[Effect]:
        """A row of the round under way here, or the least of several."""
        if pdu.heard:
            return self._on_many(sender, pdu)
        rank = self._rank[sender]
        if not self._heard[rank]:
            self._heard[rank] = 1
            self._keep(pdu.counts)
            self._note_answer()
            if sender not in self._suspected:
                self._missing -= 1
                if not self._missing:
                    return self._finish() + self._answer(sender, pdu)
        return self._answer(sender, pdu)

    def _on_many(self, sender: Site, pdu: Row) -> list[Effect]:
        heard = self._read_heard(sender, pdu.heard)
        if heard is None:
            return self._ignore()
        known = np.frombuffer(self._heard, np.uint8)
        if (heard > known).any():
            self._heard = bytearray((heard | known).tobytes())
            self._keep(pdu.counts)
            self._missing = len(self._unheard())
            if not self._missing:
                return self._finish() + self._answer(sender, pdu)
        return self._answer(sender, pdu)

    def _read_heard(self, sender: Site, bitmap: bytes) -> NDArray[np.uint8] | None:
        """By rank, 1 for each row that is covered; None if that makes no sense."""
        size = len(self._order)
        if len(bitmap) != (size + 7) // 8:
            return None
        bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
        return None if bits[size:].any() or not bits[self._rank[sender]] else bits[:size]

    def _keep(self, counts: bytes) -> None:
        self._rows.append(counts)
        if len(self._rows) == FOLD_ROWS:
            self._fold()

    def _on_other_round(self, sender: Site, pdu: Row) -> list[Effect]:
        if not self._makes_sense(pdu.round, pdu.counts):
            return self._ignore()
        if pdu.round > self._round:
            return self._join(pdu.round) + self._on_pdu(sender, pdu)
        # A member that asks, or that has begun a round, does not know later rounds.
        if pdu.purpose == Purpose.ASK or self._owner(pdu.round) == sender:
            return [Send(sender, self._known())]
        return []

    def _answer(self, sender: Site, pdu: Row) -> list[Effect]:
        return [Send(sender, self._known())] if pdu.purpose == Purpose.ASK else []

    def _known(self) -> Row:
        """What helps a member that lacks something: the result, or else all that we have."""
        if self._joined or self._finished is None:
            return self._all_rows(Purpose.TELL)
        return self._finished

    def _all_rows(self, purpose: Purpose) -> Row:
        """The least of our row and of those that have come."""
        self._fold()
        counts = self._fold_held(self._least).tobytes()
        heard = np.packbits(np.frombuffer(self._heard, np.uint8), bitorder="little").tobytes()
        return Row(self._round, counts, purpose, heard, self._view)

    def _fold(self) -> None:
        """Take the rows so far into the minimum."""
        if not self._rows:
            return
        rows = read_counts(b"".join(self._rows)).reshape(len(self._rows), len(self.senders))
        least = self._objective.fold_rows(rows)
        self._least = least if self._least is None else self._objective.fold(self._least, least)
        self._rows.clear()

    # The result

    def _finish(self) -> list[Effect]:
        self._fold()
        result = self._result(self._fold_held(self._least))
        self.rounds_finished += 1
        finished = Row(self._round, result.tobytes(), Purpose.RESULT, view=self._view)
        return self._end(finished) + self._declare(result) + self._begin_again()

    def _end(self, finished: Row) -> list[Effect]:
        self._finished, self._joined = finished, False
        self._note_all_answers()
        return [] if self._repetition is None else [CancelTimer(ASK)]

    def _on_result(self, pdu: Row) -> list[Effect]:
        if not self._is_sound_result(pdu.round, pdu.counts):
            return self._ignore()
        effects: list[Effect] = []
        if pdu.round > self._round or (pdu.round == self._round and self._joined):
            if pdu.round > self._round:
                effects += self._leave()
            self._round = pdu.round
            effects += self._end(pdu)
        return effects + self._take_result(pdu.counts) + ([] if self._joined else self._begin_again())

    def _leave(self) -> list[Effect]:
        """A greater round has ended without us: what was asked for here must be found by another."""
        if self._joined and self._owner(self._round) == self.site:
            self._again = True
        silenced: list[Effect] = [] if self._spoken else [CancelTimer(SPEAK)]
        self._spoken = True
        return silenced

    # Loss

    def _on_timer(self, name: str) -> list[Effect]:
        if name == SPEAK and not self._spoken:
            return self._speak()
        if name == ASK and self._joined:
            assert self._random is not None, "who repeats has a source of randomness"
            asked = self._random.choice(self._unheard())
            return [Send(asked, self._all_rows(Purpose.ASK)), *self._next_wait(ASK, self._for_answers)]
        return []

    def _unheard(self) -> list[Site]:
        """The members that are not suspected and whose rows have not come."""
        rows = zip(self._order, self._heard, strict=True)
        return [site for site, heard in rows if not heard and site not in self._suspected]

    # Crashes

    def _on_suspected(self, site: Site) -> list[Effect]:
        if not self._joined or self._heard[self._rank[site]]:
            return []
        self._missing -= 1
        return [] if self._missing else self._finish()

    def _on_restored(self, site: Site) -> list[Effect]:
        """A member that is back is waited for again."""
        if not self._joined or self._heard[self._rank[site]]:
            return []
        self._missing += 1
        return [Send(site, self._all_rows(Purpose.ASK))]
