"""Lost bodies: the list LM of what a member lacks, and the remulticast RM of what others ask it for.

Source: Konorski, section 4.3. On a shared channel everyone hears a remulticast, so whoever is asked waits a
random moment and leaves it to another who was quicker. Elsewhere one member answers, to the one who asked:
the sender if it was heard of lately, else one that all agree on without a word; when that did not help, each
answers with probability a half.
"""

from random import Random
from typing import Final

from antiphon.core.effects import Effect, Multicast, Send
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.buffers import Held
from antiphon.protocols.dpg.order import Order
from antiphon.protocols.dpg.pdus import DpgConfiguration, Remulticast, Tag

MOST_ASKED: Final = 64
"""Bodies asked for in one report at most. Raising it lets one report cost the group more."""
MOST_ANSWERS: Final = 256
"""Answers that wait or are remembered. Raising it costs memory."""


class Answer:
    """A body that was asked for here."""

    __slots__ = ("asked", "asked_ns", "due_ns", "to")

    def __init__(self) -> None:
        self.to: Site | None = None
        self.asked = 0
        self.asked_ns: Nanoseconds = 0
        self.due_ns: Nanoseconds | None = None


class Recovery:
    """Asks and answers for one member; times are in its own clock."""

    def __init__(self, site: Site, configuration: DpgConfiguration, random: Random, *, shared: bool) -> None:
        self._site = site
        self._configuration = configuration
        self._random = random
        self._shared = shared
        self._answers: dict[Tag, Answer] = {}
        self.remulticasts = 0

    def wanted(self, order: Order, time_ns: Nanoseconds) -> list[Tag]:
        """LM: what is lacking and has not been asked for within Retr_Cycle."""
        since_ns = time_ns - self._configuration.retr_cycle_ns
        due = [tag for tag, asked_ns in order.lost.items() if asked_ns <= since_ns][:MOST_ASKED]
        for tag in due:
            order.lost[tag] = time_ns
        return due

    def asked(
        self, order: Order, time_ns: Nanoseconds, by: Site, tags: tuple[Tag, ...], lately: frozenset[Site]
    ) -> bool:
        """Another lacks these; whether an answer is due later."""
        for tag in tags[:MOST_ASKED]:
            held = order.body(tag)
            if held is None:
                continue
            order.kept.touch(time_ns, tag)
            answer = self._note(tag, time_ns)
            answer.to = by
            if answer.due_ns is None and (self._shared or self._is_my_turn(tag, held, answer, by, lately)):
                own = held.sender == self._site
                wait = 0.1 * self._random.random() if own else 0.2 + self._random.random()
                answer.due_ns = time_ns + round(wait * self._configuration.retr_cycle_ns / 2)
        return any(answer.due_ns is not None for answer in self._answers.values())

    def _note(self, tag: Tag, time_ns: Nanoseconds) -> Answer:
        answer = self._answers.get(tag)
        if answer is None or time_ns - answer.asked_ns > 8 * self._configuration.retr_cycle_ns:
            if len(self._answers) >= MOST_ANSWERS:
                del self._answers[next(iter(self._answers))]
            answer = self._answers[tag] = Answer()
        answer.asked += 1
        answer.asked_ns = time_ns
        return answer

    def _is_my_turn(self, tag: Tag, held: Held, answer: Answer, by: Site, lately: frozenset[Site]) -> bool:
        if held.sender == self._site:
            return True
        if answer.asked > 1:
            return self._random.random() < 0.5
        able = sorted((lately | {self._site}) - {by})
        return held.sender not in able and able[tag % len(able)] == self._site

    def heard(self, tag: Tag) -> None:
        """Another has remulticast it."""
        answer = self._answers.get(tag)
        if answer is not None and self._shared:
            answer.due_ns = None

    def answer(self, order: Order, time_ns: Nanoseconds) -> tuple[list[Effect], Nanoseconds | None]:
        """RM: what is due now, and when the next one is."""
        effects: list[Effect] = []
        next_ns: Nanoseconds | None = None
        for tag, answer in self._answers.items():
            if answer.due_ns is None:
                continue
            if answer.due_ns > time_ns:
                next_ns = answer.due_ns if next_ns is None else min(next_ns, answer.due_ns)
                continue
            answer.due_ns = None
            held = order.body(tag)
            if held is not None:
                self.remulticasts += 1
                effects.append(self._pdu(held, answer.to))
        return effects, next_ns

    def _pdu(self, held: Held, to: Site | None) -> Effect:
        sender, message = held
        again = Remulticast(
            sender, message.tag, message.previous, message.seen, message.stamp, message.incarnation,
            message.number, message.bodies,
        )  # fmt: skip
        return Multicast(again) if self._shared or to is None else Send(to, again)

    def forget(self) -> None:
        self._answers.clear()
