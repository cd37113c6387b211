"""Lost bodies: the list LM of what a member lacks, and the remulticast RM of what others ask it for.

Source: Konorski, section 4.3. One member answers: the sender if it was heard of lately, else one that all
agree on without a word; when that did not help, a few at random, each time twice as many. On a shared channel
everyone hears a remulticast, and leaves it to whoever was quicker; elsewhere it goes to the one who asked.
Who asks tells also what becomes of a message that has been waited for long enough: it is passed over if all
who are there lack it. Whoever has passed it over already says so to those who ask.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from antiphon.core.effects import Effect, Multicast, Send
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.buffers import Held
from antiphon.protocols.dpg.company import Company
from antiphon.protocols.dpg.order import Order
from antiphon.protocols.dpg.pdus import MOST_ASKED, DpgConfiguration, Remulticast, Request, Tag
from antiphon.protocols.dpg.tag_lists import pack_tags
from antiphon.protocols.dpg.wakes import Wakes

MOST_DOUBLINGS: Final = 5
"""Vain requests after which the pause before the next grows no more."""
MOST_ANSWERS: Final = 256
"""Answers that wait or are remembered. Raising it costs memory."""


class Answer:
    """A body that was asked for here."""

    __slots__ = ("asked_ns", "due_ns", "since_ns", "to", "told_ns")

    def __init__(self, since_ns: Nanoseconds) -> None:
        self.since_ns = since_ns
        self.to: Site | None = None
        self.asked_ns: Nanoseconds = 0
        self.due_ns: Nanoseconds | None = None
        self.told_ns: Nanoseconds | None = None
        """When it was told last, by us or by another."""


class Recovery:
    """Asks and answers for one member; `time_ns` is in its own clock.

    Its timers are `ask` and `answer`.
    """

    def __init__(
        self,
        site: Site,
        configuration: DpgConfiguration,
        order: Order,
        company: Company,
        wakes: Wakes,
        random: Random,
        emit: Callable[[Effect], None],
        *,
        shared: bool,
    ) -> None:
        self._site = site
        self._configuration = configuration
        self._order = order
        self._company = company
        self._wakes = wakes
        self._random = random
        self._emit = emit
        self._shared = shared
        self._answers: dict[Tag, Answer] = {}
        self._gone: dict[Tag, None] = {}
        self._passed: dict[Tag, None] = {}
        self._tries: dict[Tag, int] = {}
        """How often each body that is lacking here was asked for."""
        self._lacking: dict[Tag, dict[Site, Nanoseconds]] = {}
        """Who else has asked for each of them, and when."""
        self._ask_ns: Nanoseconds = 0
        """When the first of them is to be asked for again."""
        self.remulticasts = 0

    # Asking

    def ask_soon(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """If LM is not empty. Not at once, since others may lack the same, and one of them be quicker."""
        order = self._order
        if order.newly_lost or (order.lost and time_ns >= self._ask_ns):
            wait_ns = round(self._configuration.report_cycle_ns * self._random.random())
            self._wakes.set_own("ask", now, time_ns + wait_ns)

    def ask(self, time_ns: Nanoseconds) -> None:
        """The timer `ask`."""
        wanted = self.wanted(time_ns)
        if wanted:
            self._emit(Multicast(Request(pack_tags(wanted))))

    def wanted(self, time_ns: Nanoseconds) -> list[Tag]:
        """LM: what is lacking and has not been asked for within Retr_Cycle, or longer after vain requests."""
        order = self._order
        tries = self._tries = {tag: self._tries.get(tag, 0) for tag in order.lost}
        self._lacking = {tag: sites for tag, sites in self._lacking.items() if tag in tries}
        due = [tag for tag, asked_ns in order.lost.items() if asked_ns + self._pause_ns(tag) <= time_ns]
        for tag in due[:MOST_ASKED]:
            order.lost[tag] = time_ns
            tries[tag] += 1
        next_ns = (asked_ns + self._pause_ns(tag) for tag, asked_ns in order.lost.items())
        self._ask_ns = min(next_ns, default=time_ns)
        order.newly_lost = False
        return due[:MOST_ASKED]

    def _pause_ns(self, tag: Tag) -> Nanoseconds:
        return self._configuration.retr_cycle_ns << min(self._tries[tag], MOST_DOUBLINGS) >> 1

    def hope_again(self) -> None:
        """Someone came who may have what was asked for in vain: ask as at first."""
        self._tries.clear()
        self._ask_ns = 0

    # What is lacking elsewhere

    def lacking(self, time_ns: Nanoseconds, tag: Tag) -> set[Site]:
        """Who else has lately asked for what is lacking here."""
        since_ns = time_ns - self._configuration.dummy_cycle_ns
        return {site for site, asked_ns in self._lacking.get(tag, {}).items() if asked_ns >= since_ns}

    def may_pass(self, time_ns: Nanoseconds, tag: Tag) -> bool:
        """Whether nobody has a body: all who are there have asked for it."""
        others = self._company.sites()
        return bool(others) and others <= self.lacking(time_ns, tag)

    def has_a_hole(self, now: Nanoseconds, time_ns: Nanoseconds) -> bool:
        """Whether others have a message that we have waited for long enough.

        Whoever is silent may be gone, and then it does not matter that it has not asked for it. If fewer have
        not asked than have, they may be gone soon, and are waited for as long again.
        """
        tag = self._order.awaited(time_ns)
        if tag is None:
            return False
        company, lacking = self._company, self.lacking(time_ns, tag)
        have = len(company.lately(now) - lacking)
        waited_ns = time_ns - self._order.queue[0].since_ns
        is_over = have >= len(lacking) or waited_ns >= 2 * self._configuration.dummy_cycle_ns
        return not company.known() or (have > 0 and is_over)

    def is_too_late_for(self, gone: tuple[Tag, ...]) -> bool:
        """Whether the others have left behind what we wait for: a body, or the place of an own message."""
        order, queue = self._order, self._order.queue
        if self._shared and any(tag in order.own and not order.is_known(tag) for tag in gone):
            return True
        return bool(gone) and bool(queue) and queue[0].tag in gone and queue[0].tag in order.lost

    def has_gone(self) -> bool:
        """Whether somebody asks in vain and should know."""
        return bool(self._gone or self._passed)

    def heard_of(self, tags: tuple[Tag, ...]) -> None:
        """Another does not know where these stand: it should hear of those that no report tells any more."""
        if self._shared:
            for tag in tags:
                if len(self._gone) < MOST_ASKED and self._order.is_beyond_reports(tag):
                    self._gone[tag] = None

    def gone(self) -> list[Tag]:
        """What was asked for here lately that was delivered and is not kept any more, or told of no more."""
        gone = list(self._gone)
        self._gone.clear()
        return gone

    def passed(self) -> list[Tag]:
        """What was asked for here lately that we have passed over: we shall never have it."""
        passed = list(self._passed)
        self._passed.clear()
        return passed

    def note_passed(self, time_ns: Nanoseconds, by: Site, tags: tuple[Tag, ...]) -> None:
        """Another has passed these over, and so lacks them for good."""
        for tag in tags:
            if tag in self._order.lost:
                self._lacking.setdefault(tag, {})[by] = time_ns

    # Answering

    def asked(self, now: Nanoseconds, time_ns: Nanoseconds, by: Site, tags: tuple[Tag, ...]) -> None:
        """Another lacks these: have those remulticast in time that fall to us."""
        order, lately = self._order, self._company.lately(now)
        for tag in tags:
            held = order.body(tag)
            if held is None:
                if tag in order.lost:
                    self._lacking.setdefault(tag, {})[by] = time_ns
                elif order.was_delivered(tag) and len(self._gone) < MOST_ASKED:
                    self._gone[tag] = None
                elif order.was_passed(tag) and len(self._passed) < MOST_ASKED:
                    self._passed[tag] = None
                continue
            order.kept.touch(time_ns, tag)
            answer = self._note(tag, time_ns)
            answer.to = by
            if answer.due_ns is None and self._is_my_turn(tag, held, answer, by, lately, time_ns):
                own = held.sender == self._site
                wait = 0.1 * self._random.random() if own else 0.2 + self._random.random()
                answer.due_ns = time_ns + round(wait * self._configuration.retr_cycle_ns / 2)
        self.answer(now, time_ns)

    def _note(self, tag: Tag, time_ns: Nanoseconds) -> Answer:
        answer = self._answers.get(tag)
        if answer is None or time_ns - answer.asked_ns > 8 * self._configuration.retr_cycle_ns:
            if len(self._answers) >= MOST_ANSWERS:
                del self._answers[next(iter(self._answers))]
            answer = self._answers[tag] = Answer(time_ns)
        answer.asked_ns = time_ns
        return answer

    def _is_my_turn(
        self, tag: Tag, held: Held, answer: Answer, by: Site, lately: frozenset[Site], time_ns: Nanoseconds
    ) -> bool:
        told_ns = answer.told_ns
        if self._shared and told_ns is not None and time_ns - told_ns <= self._configuration.retr_cycle_ns:
            return False  # what everyone was told a moment ago is still on its way to whoever asks
        if held.sender == self._site:
            return True
        able = sorted((lately | {self._site}) - {by})
        cycles = (time_ns - answer.since_ns) // self._configuration.retr_cycle_ns
        if cycles:
            # About one of those who may have it, twice as many each cycle later. That several ask says
            # little: a large group misses the same message several times over, and if half of all others
            # answered each of them, nothing else got on.
            return self._random.random() < min(0.5, (1 << min(cycles - 1, MOST_DOUBLINGS)) / len(able))
        return held.sender not in able and able[tag % len(able)] == self._site

    def heard(self, time_ns: Nanoseconds, tag: Tag) -> None:
        """Another has remulticast it."""
        answer = self._answers.get(tag)
        if answer is not None and self._shared:
            answer.due_ns = None
            answer.told_ns = time_ns

    def answer(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """The timer `answer`. RM: what is due now, and a timer for the next one."""
        next_ns: Nanoseconds | None = None
        for tag, answer in self._answers.items():
            if answer.due_ns is None:
                continue
            if answer.due_ns > time_ns:
                next_ns = answer.due_ns if next_ns is None else min(next_ns, answer.due_ns)
                continue
            answer.due_ns = None
            answer.told_ns = time_ns
            held = self._order.body(tag)
            if held is not None:
                self.remulticasts += 1
                self._emit(self._pdu(held, answer.to))
        if next_ns is not None:
            self._wakes.set_own("answer", now, next_ns)

    def _pdu(self, held: Held, to: Site | None) -> Effect:
        message = held.message
        again = Remulticast(
            held.sender, message.tag, message.previous, message.seen, message.stamp, message.incarnation,
            message.number, message.bodies,
        )  # fmt: skip
        return Multicast(again) if self._shared or to is None else Send(to, again)

    def listen(self) -> None:
        """What was asked for before an absence is asked for again if need be."""
        self._answers.clear()
