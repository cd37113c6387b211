"""Lost bodies: the list LM of what a member lacks, and the list RM of what it retransmits.

Source: Konorski, section 4.3. One member answers: the sender if it was heard recently, else a member that the
tag determines. If that does not help, a few answer at random, twice as many each time. On a shared channel
all members hear a retransmission, and the others need not answer; elsewhere it goes to the requester.
Requests also decide about a message that was awaited long enough: it is passed over if all present members
lack it. A member that has already passed it over says so to requesters.
"""

from typing import Final

from antiphon.core.effects import Effect, Multicast, Send
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.buffers import Held
from antiphon.protocols.dpg.context import Context
from antiphon.protocols.dpg.order import Order
from antiphon.protocols.dpg.pdus import MOST_ASKED, Remulticast, Request, Tag
from antiphon.protocols.dpg.peers import Peers
from antiphon.protocols.dpg.tag_lists import pack_tags

MOST_DOUBLINGS: Final = 5
"""Vain requests after which the pause no longer grows. Raising it costs latency after many losses."""
QUEUES: Final = 4
"""How far requests are spread where PDUs wait for the channel, in multiples of that time, so that answers do
not come all at once. Raising it costs latency there."""
MOST_ANSWERS: Final = 256
"""Answers that wait or are remembered. Raising it costs memory."""


class Answer:
    """A body that was requested from this member."""

    __slots__ = ("asked_ns", "due_ns", "since_ns", "to", "told_ns")

    def __init__(self, to: Site, since_ns: Nanoseconds) -> None:
        self.to = to
        self.since_ns = since_ns
        self.asked_ns: Nanoseconds = 0
        self.due_ns: Nanoseconds | None = None
        self.told_ns: Nanoseconds | None = None
        """When it was last retransmitted, by any member."""


class Recovery:
    """The requests and answers of one member; `time_ns` is in its own clock.

    Its timers are `ask` and `answer`.
    """

    def __init__(self, context: Context, order: Order, peers: Peers) -> None:
        self._site = context.site
        self._configuration = context.configuration
        self._order = order
        self._peers = peers
        self._timers = context.timers
        self._random = context.random
        self._emit = context.emit
        self._queue = context.queue
        self._shared = context.service.reports_ordered
        self._answers: dict[Tag, Answer] = {}
        self._gone: dict[Tag, None] = {}
        self._passed: dict[Tag, None] = {}
        self._tries: dict[Tag, int] = {}
        """How often each missing body was requested."""
        self._lacking: dict[Tag, dict[Site, Nanoseconds]] = {}
        """Which peers have requested each of them, and when."""
        self._refused: dict[Tag, set[Site]] = {}
        """Which peers have sent a body of each of them that is not believed here."""
        self._ask_ns: Nanoseconds = 0
        """When the first of them is to be requested again."""
        self.remulticasts = 0

    # Asking

    def ask_soon(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """Request what LM holds, after a random pause: others may lack the same and request it first."""
        order = self._order
        if order.newly_lost or (order.lost and time_ns >= self._ask_ns):
            longest_ns = self._configuration.report_cycle_ns + QUEUES * self._queue.wait_ns
            wait_ns = round(longest_ns * self._random.random())
            self._timers.arm_own(now, "ask", time_ns + wait_ns)

    def ask(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """The timer `ask`."""
        wanted = self.wanted(time_ns)
        if wanted:
            self._emit(Multicast(Request(pack_tags(wanted))))
        if self._order.lost:
            self._timers.arm_own(now, "ask", max(time_ns + 1, self._ask_ns))

    def wanted(self, time_ns: Nanoseconds) -> list[Tag]:
        """LM: what is missing, would fit, and was not requested within Retr_Cycle, or longer after vain
        requests."""
        order = self._order
        tries = self._tries = {tag: self._tries.get(tag, 0) for tag in order.lost}
        self._lacking = {tag: sites for tag, sites in self._lacking.items() if tag in tries}
        self._refused = {tag: sites for tag, sites in self._refused.items() if tag in tries}
        fitting = order.fitting()
        due = [tag for tag in fitting if order.lost[tag] + self._pause_ns(tag) <= time_ns]
        for tag in due[:MOST_ASKED]:
            order.lost[tag] = time_ns
            tries[tag] += 1
        next_ns = (order.lost[tag] + self._pause_ns(tag) for tag in fitting)
        self._ask_ns = min(next_ns, default=time_ns)
        order.newly_lost = False
        return due[:MOST_ASKED]

    def _pause_ns(self, tag: Tag) -> Nanoseconds:
        return self._retr_cycle_ns() << min(self._tries[tag], MOST_DOUBLINGS) >> 1

    def _retr_cycle_ns(self) -> Nanoseconds:
        """Retr_Cycle, and the time in which a request and its answer wait for the channel."""
        return self._configuration.retr_cycle_ns + 2 * self._queue.wait_ns

    def ask_anew(self) -> None:
        """A newcomer may have what was requested in vain: request it as at first."""
        self._tries.clear()
        self._ask_ns = 0

    # What is lacking elsewhere

    def lacking(self, time_ns: Nanoseconds, tag: Tag) -> set[Site]:
        """The peers that have recently requested a body that is missing here."""
        since_ns = time_ns - self._configuration.dummy_cycle_ns
        return {site for site, asked_ns in self._lacking.get(tag, {}).items() if asked_ns >= since_ns}

    def may_pass(self, time_ns: Nanoseconds, tag: Tag) -> bool:
        """Whether no peer has a body: all of them have requested it.

        Peers whose body is refused here do not count, unless they are more than those that lack it: a liar
        may tell one member an incarnation of its own that all others know to be false.
        """
        others, lacking = self._peers.sites(), self.lacking(time_ns, tag)
        refused = self._refused.get(tag, set())
        return bool(others) and others <= lacking | refused and len(refused) <= len(lacking)

    def has_a_hole(self, now: Nanoseconds, time_ns: Nanoseconds) -> bool:
        """Whether others have a message that was awaited long enough here.

        A silent peer may be gone, and then does not count although it has not requested it. If most peers
        have requested it, the others may be gone soon: wait as long again.
        """
        tag = self._order.awaited(time_ns)
        if tag is None:
            return False
        peers, lacking = self._peers, self.lacking(time_ns, tag)
        have = len(peers.lately(now) - lacking)
        waited_ns = time_ns - self._order.queue[0].since_ns
        is_over = have >= len(lacking) or waited_ns >= 2 * self._configuration.dummy_cycle_ns
        return not peers.known() or (have > 0 and is_over)

    def is_too_late_for(self, gone: tuple[Tag, ...]) -> bool:
        """Whether the others no longer have what is awaited here: a body, or the place of an own message."""
        order, queue = self._order, self._order.queue
        if self._shared and any(tag in order.own and not order.is_known(tag) for tag in gone):
            return True
        return bool(gone) and bool(queue) and queue[0].tag in gone and queue[0].tag in order.lost

    def has_gone(self) -> bool:
        """Whether a peer requests in vain and should know."""
        return bool(self._gone or self._passed)

    def on_vertices(self, tags: tuple[Tag, ...]) -> None:
        """A peer does not know the places of these: tell it those that reports no longer carry."""
        if self._shared:
            for tag in tags:
                if len(self._gone) < MOST_ASKED and self._order.is_beyond_reports(tag):
                    self._gone[tag] = None

    def gone(self) -> list[Tag]:
        """What was recently requested here that was delivered and is no longer kept or reported."""
        gone = list(self._gone)
        self._gone.clear()
        return gone

    def passed(self) -> list[Tag]:
        """What was recently requested here that this member has passed over."""
        passed = list(self._passed)
        self._passed.clear()
        return passed

    def on_passed(self, time_ns: Nanoseconds, by: Site, tags: tuple[Tag, ...]) -> None:
        """A peer has passed these over, and so lacks them for good."""
        for tag in tags:
            if tag in self._order.lost:
                self._lacking.setdefault(tag, {})[by] = time_ns

    def on_refused(self, tag: Tag, by: Site) -> None:
        """A peer has sent a body that is not believed here."""
        if by in self._peers.sites():
            self._refused.setdefault(tag, set()).add(by)

    # Answering

    def on_request(self, now: Nanoseconds, time_ns: Nanoseconds, by: Site, tags: tuple[Tag, ...]) -> None:
        """A peer lacks these: schedule the answers that fall to this member."""
        order, lately = self._order, self._peers.lately(now)
        for tag in tags:
            held = order.body(tag)
            if held is None:
                if tag in order.lost:
                    self._lacking.setdefault(tag, {})[by] = time_ns
                    self._share_request(time_ns, tag)
                elif order.was_delivered(tag) and len(self._gone) < MOST_ASKED:
                    self._gone[tag] = None
                elif order.was_passed(tag) and len(self._passed) < MOST_ASKED:
                    self._passed[tag] = None
                continue
            order.kept.touch(time_ns, tag)
            answer = self._note(tag, by, time_ns)
            if answer.due_ns is None and self._is_my_turn(tag, held, answer, by, lately, time_ns):
                own = held.sender == self._site
                wait = 0.1 * self._random.random() if own else 0.2 + self._random.random()
                answer.due_ns = time_ns + round(wait * self._configuration.retr_cycle_ns / 2)
        self.answer(now, time_ns)

    def _share_request(self, time_ns: Nanoseconds, tag: Tag) -> None:
        """On a shared channel the answer to a peer's request comes here as well: the first try is saved.

        Where buffers are scarce it may come too early to be held.
        """
        order = self._order
        has_room = 2 * len(order.buffers) < self._configuration.ordering_buffers
        if self._shared and has_room and not self._tries.get(tag):
            order.lost[tag] = time_ns
            self._tries[tag] = 1

    def _note(self, tag: Tag, by: Site, time_ns: Nanoseconds) -> Answer:
        """The answer to a request; a later request belongs to it after the longest pause between them."""
        answer = self._answers.get(tag)
        if answer is None or time_ns - answer.asked_ns > self._retr_cycle_ns() << MOST_DOUBLINGS:
            if len(self._answers) >= MOST_ANSWERS:
                del self._answers[next(iter(self._answers))]
            answer = self._answers[tag] = Answer(by, time_ns)
        answer.to = by
        answer.asked_ns = time_ns
        return answer

    def _is_my_turn(
        self, tag: Tag, held: Held, answer: Answer, by: Site, lately: frozenset[Site], time_ns: Nanoseconds
    ) -> bool:
        told_ns = answer.told_ns
        if self._shared and told_ns is not None and time_ns - told_ns <= self._retr_cycle_ns():
            return False  # what was just retransmitted is still on its way to the requester
        if held.sender == self._site:
            return True
        able = sorted((lately | {self._site}) - {by})
        cycles = (time_ns - answer.since_ns) // self._retr_cycle_ns()
        if cycles:
            # About one of those that may have it, twice as many each cycle later. Several requests say
            # little: a large group misses the same message several times, and if half of all others
            # answered each request, nothing else would be sent.
            return self._random.random() < min(0.5, (1 << min(cycles - 1, MOST_DOUBLINGS)) / len(able))
        return held.sender not in able and able[tag % len(able)] == self._site

    def on_retransmission(self, time_ns: Nanoseconds, tag: Tag) -> None:
        """A peer has retransmitted it."""
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
            self._timers.arm_own(now, "answer", next_ns)

    def _pdu(self, held: Held, to: Site) -> Effect:
        message = held.message
        again = Remulticast(
            held.sender, message.tag, message.previous, message.seen, message.stamp, message.incarnation,
            message.number, message.bodies,
        )  # fmt: skip
        return Multicast(again) if self._shared else Send(to, again)

    def listen(self) -> None:
        """Requests of before an absence are void."""
        self._answers.clear()
