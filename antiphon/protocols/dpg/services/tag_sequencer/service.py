"""The tag sequencer as a member sees it: following the numbering, and doing it when it falls to us."""

from collections.abc import Callable
from typing import Final

from antiphon.core.effects import Multicast, Send, SetTimer
from antiphon.core.ids import Site
from antiphon.core.time import MILLISECOND_NS, NEVER_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.dpg.pdus import ORIGIN, Farewell, Message, Report, Tag
from antiphon.protocols.dpg.services.base import PREFIX, MemberView, Placements
from antiphon.protocols.dpg.services.tag_sequencer.announcer import GATHER, LEFT, TICK
from antiphon.protocols.dpg.services.tag_sequencer.claim_round import ClaimRound, Neighbours
from antiphon.protocols.dpg.services.tag_sequencer.follower import Follower
from antiphon.protocols.dpg.services.tag_sequencer.leader import Leader
from antiphon.protocols.dpg.services.tag_sequencer.number_requests import ASK, NumberRequests
from antiphon.protocols.dpg.services.tag_sequencer.numbers import Numbers
from antiphon.protocols.dpg.services.tag_sequencer.patience import ROUND_TRIPS, Patience
from antiphon.protocols.dpg.services.tag_sequencer.pdus import (
    FIRST_EPOCH,
    FIRST_NUMBER,
    LAST_NUMBER,
    NO_EPOCH,
    PDUS,
    Answer,
    Ask,
    Claim,
    Epoch,
    Numbered,
    SequencerOptions,
    TagRequest,
    is_leap,
    pack_note,
    read_note,
    read_tags,
)
from antiphon.protocols.dpg.tag_lists import pack_tags

CLAIM: Final = PREFIX + "claim"
ASSUMED_NS: Final[Nanoseconds] = 50 * MILLISECOND_NS
"""Assumed time of an answer before anything was numbered. Raising it costs time if a claim fails."""
CLAIM_REPEATS: Final = 5
"""Repetitions of a claim while its answers are awaited. Raising it costs PDUs."""
TELL_AGAIN_NS: Final[Nanoseconds] = 10 * MILLISECOND_NS
"""Pause before sequencers of past epochs are told again. Raising it costs time until they stop."""


class SequencerService:
    """Implements `Service`. At any time it follows an epoch's sequencer, claims to be it, or is it."""

    reports_ordered = False
    hears_itself = True
    pdus: tuple[type[Pdu], ...] = PDUS

    def __init__(self, options: SequencerOptions | None = None) -> None:
        self._options = options or SequencerOptions()
        self._ignored = 0
        self._stale = 0
        self._claims = 0
        self._earlier_conflicts = 0
        self._requests_sent = 0
        self._earlier_announced = 0
        self._counter = 0
        self._taking_part = False

    def attach(self, member: MemberView) -> None:
        self._member = member
        self._reset(0)

    def _reset(self, now: Nanoseconds) -> None:
        """Forget all numbers."""
        member, options = self._member, self._options
        self._numbers = Numbers(options.memory)
        self._number_requests = NumberRequests(member, self._numbers, options)
        self._follower = Follower(member, self._numbers, self._number_requests)
        self._leader = Leader(member, options, self._numbers, self._follower)
        self._patience = Patience(options, member.random)
        self._neighbours = Neighbours()
        self._epoch = Epoch(0, options.outside) if options.outside else NO_EPOCH
        self._vacant = options.outside is None
        self._has_left = False
        self._claim: ClaimRound | None = None
        self._claim_armed = False
        self._claim_due_ns: Nanoseconds = 0
        self._base_known = False
        self._told_ns: Nanoseconds = 0
        self._begin_epoch(now)

    # Inputs

    def start(self, now: Nanoseconds, incarnation: int) -> None:  # noqa: ARG002 - epochs need no incarnations
        self._counter = max(self._counter, self._epoch.counter)
        self._earlier_announced += self._leader.announcer.announced
        self._earlier_conflicts += self._follower.conflicts
        self._taking_part = False
        self._reset(now)

    def take_part(self, now: Nanoseconds) -> None:
        self._taking_part = True
        self._follower.take_part()
        if self._member.is_at_origin():
            self._numbers.expect_all()
        self._reconcile(now)
        self._number_requests.wake(now)
        if self._vacant and self._number_requests.own:
            self._claim_in_turn(now)

    def depart(self, now: Nanoseconds) -> Placements:
        if self._leader.active:
            self._announce(now, at_once=True)
            self._leader.leave(now)
        self._claim = None
        self._taking_part = False
        return self._follower.take_placed()

    def stamp(self, now: Nanoseconds) -> int:  # noqa: ARG002 - numbers come later
        return 0

    def hand_over(self, now: Nanoseconds, message: Message) -> None:
        self._member.emit(Multicast(message))
        self._follower.note(now, self._member.site, message.tag, message.previous)
        if self._leader.active:
            self._leader.take(now, self._member.site, message.tag, message.previous)
            self._announce(now)
            return
        self._number_requests.own[message.tag] = now
        if self._epoch.sequencer == self._options.outside:
            self._member.emit(Send(self._epoch.sequencer, TagRequest(self._number_requests.listed(), 1, 0)))
        self._number_requests.wake(now)
        if self._vacant:
            self._claim_in_turn(now)

    def on_message(
        self,
        now: Nanoseconds,
        sender: Site,
        message: Message,
        *,
        after_loss: bool,  # noqa: ARG002 - numbers tell what was missed
        fresh: bool,
    ) -> Placements:
        self._hear(now, sender)
        if sender == self._epoch.sequencer:
            self._patience.heard_ns = now
        if fresh:
            if message.previous == ORIGIN:
                self._follower.forget_sender(sender)
            self._follower.note(now, sender, message.tag, message.previous)
            if self._leader.active:
                self._leader.take(now, sender, message.tag, message.previous)
                self._announce(now)
        return self._follower.take_placed()

    def on_report(self, now: Nanoseconds, sender: Site, report: Report, *, after_loss: bool) -> Placements:  # noqa: ARG002
        self._hear(now, sender)
        note = read_note(report.service)
        if note is None:
            self._ignored += 1
        else:
            self._on_note(now, sender, *note)
        return self._follower.take_placed()

    def _on_note(self, now: Nanoseconds, sender: Site, epoch: Epoch, newest: int) -> None:
        self._on_epoch(now, sender, epoch)
        is_told = epoch == self._epoch and not is_leap(newest, self._numbers.newest)
        if is_told and self._number_requests.hear_of(newest):
            self._number_requests.look_for_gaps(now)

    def on_other_pdu(self, now: Nanoseconds, sender: Site, pdu: Pdu, *, after_loss: bool) -> Placements:  # noqa: ARG002
        self._hear(now, sender)
        act = self._words.get(type(pdu))
        if act is not None:
            act(self, now, sender, pdu)
        elif sender == self._epoch.sequencer:
            self._patience.heard_ns = now
        return self._follower.take_placed()

    def on_vanished(self, now: Nanoseconds, site: Site) -> None:
        """No-op: a member that waits for a number replaces a silent sequencer."""

    def on_located(self, now: Nanoseconds, tag: Tag) -> None:  # noqa: ARG002 - only that it is known counts
        self._number_requests.own.pop(tag, None)

    def on_timer(self, now: Nanoseconds, name: str) -> Placements:
        act = self._timers.get(name)
        if act is not None:
            act(self, now)
        elif name.startswith(LEFT):
            self._on_left(now, int(name.removeprefix(LEFT)))
        return self._follower.take_placed()

    def note(self, now: Nanoseconds) -> bytes:  # noqa: ARG002 - it holds until the next one
        return pack_note(self._epoch, self._numbers.newest)

    def figures(self) -> dict[str, int]:
        leading = self._leader
        return {
            "ignored": self._ignored,
            "stale": self._stale,
            "epoch": self._epoch.counter,
            "is_sequencer": int(leading.active),
            "claims": self._claims,
            "numbered": self._earlier_announced + leading.announcer.announced,
            "conflicts": self._earlier_conflicts + self._follower.conflicts,
            "requests": self._requests_sent,
            "lease_ns": leading.announcer.lease.ns if leading.active else self._patience.lease_ns,
        }

    # Following

    def _hear(self, now: Nanoseconds, sender: Site) -> None:
        if self._leader.active:
            self._leader.announcer.look(now)
        self._neighbours.note(now, sender)

    def _on_numbered(self, now: Nanoseconds, sender: Site, pdu: Numbered) -> None:
        if (pdu.counter, sender) != self._epoch:
            self._on_epoch(now, sender, Epoch(pdu.counter, sender))
            if (pdu.counter, sender) != self._epoch:
                self._tell_past(now, sender)
                return
        tags = read_tags(pdu.tags)
        if tags is None:
            self._ignored += 1
            return
        self._patience.numbered(now, pdu.lease_ns)
        self._vacant = self._has_left
        if not self._base_known:
            self._base_known = True
            self._follower.drop_from(pdu.base)
        self._follower.learn_all(now, pdu.first, tags)

    def _fire_ask(self, now: Nanoseconds) -> None:
        asking = self._number_requests
        if asking.woke(now) > self._options.takeover_ns // 4:
            self._patience.stood_still(now)
        if self._leader.active or self._claim is not None:
            return
        self._reconcile(now)
        oldest_ns = None if self._vacant else asking.oldest_ns()
        takeover_ns = self._takeover_ns(now, oldest_ns)
        if takeover_ns is None:
            self._begin_claim(now)
            return
        request = asking.request(now)
        if request is not None and self._epoch != NO_EPOCH:
            self._requests_sent += 1
            self._member.emit(Send(self._epoch.sequencer, request))
        asking.wake_again(now, takeover_ns)

    def _takeover_ns(self, now: Nanoseconds, oldest_ns: Nanoseconds | None) -> Nanoseconds | None:
        """When to replace the sequencer; None if that is now. An outside one is waited for."""
        if self._options.outside is not None:
            return NEVER_NS
        return self._patience.next_ns(now, oldest_ns, self._number_requests.least_ns)

    def _reconcile(self, now: Nanoseconds) -> None:
        """Find the messages that wait for a number; a listening member hands them over anew first."""
        if self._taking_part:
            self._number_requests.reconcile(now)

    # Epochs

    def _on_epoch(self, now: Nanoseconds, sender: Site, epoch: Epoch) -> None:
        """A peer tells the latest epoch that it knows."""
        if sender == self._epoch.sequencer:
            if epoch < self._epoch and now > self._patience.epoch_ns + self._patience.lease_ns:
                self._succeed(now)  # it has lost the role with its memory
                return
            self._patience.heard_ns = now
        if epoch <= self._epoch:
            return
        is_believed = self._may_lead(epoch.sequencer) and not is_leap(epoch.counter, self._epoch.counter)
        if not is_believed or self._is_idle_talk(now, sender):
            self._ignored += 1
        elif epoch.sequencer != self._member.site:
            self._adopt(now, epoch)
        elif epoch.counter > self._counter:
            # A peer holds this member for the sequencer of an earlier process: a claim must be later.
            self._counter = epoch.counter
            if self._leader.active or self._claim is not None:
                self._begin_claim(now)

    def _may_lead(self, site: Site) -> bool:
        return site == (self._options.outside or site) != ""

    def _is_idle_talk(self, now: Nanoseconds, sender: Site) -> bool:
        """Whether a site that has sent no message says that a working sequencer is replaced.

        A claimant waits for the number of an own message, which would be known here.
        """
        patience = self._patience
        works = self._leader.active or now <= patience.heard_ns + patience.lease_ns
        is_followed = self._taking_part and self._epoch.sequencer not in ("", sender) and not self._vacant
        return works and is_followed and not self._member.has_sent(sender)

    def _adopt(self, now: Nanoseconds, epoch: Epoch) -> None:
        """Follow this epoch's sequencer."""
        self._leader.end()
        self._leader.withdraw()
        self._claim = None
        self._epoch = epoch
        self._vacant = self._has_left = False
        self._base_known = False
        self._begin_epoch(now)
        self._reconcile(now)
        self._number_requests.wake(now)

    def _begin_epoch(self, now: Nanoseconds) -> None:
        self._patience.begin_epoch(now)
        self._number_requests.begin_anew(now)

    def _tell_past(self, now: Nanoseconds, sender: Site) -> None:
        """A sequencer of a past epoch still numbers: tell it."""
        self._stale += 1
        if now >= self._told_ns + TELL_AGAIN_NS:
            self._told_ns = now
            self._answer(sender, self._numbers.newest + 1)

    def _answer(self, to: Site, first: int) -> None:
        """Tell our epoch, and the numbers from `first` on."""
        first, tags = self._numbers.listed(first)
        self._member.emit(Send(to, Answer(*self._epoch, self._numbers.through, first, pack_tags(tags))))

    # Taking over

    def _on_farewell(self, now: Nanoseconds, sender: Site, pdu: Farewell) -> None:
        self._neighbours.leave(sender)
        if sender != self._epoch.sequencer:
            return
        self._has_left = True
        note = read_note(pdu.service)
        self._ignored += note is None
        if note is None or note[1] <= self._numbers.newest:
            self._succeed(now)
        else:  # its last numbers are still on their way
            self._vacant = True
            self._claim_soon(now, self._options.gather_answers_ns)

    def _succeed(self, now: Nanoseconds) -> None:
        """The sequencer has given up: the lowest member claims at once, others if it does not."""
        replaced = self._vacant or self._leader.active or self._claim is not None
        if replaced or self._options.outside is not None:
            return
        self._vacant = True
        if not self._taking_part:
            return
        others = self._member.lately(now) - {self._epoch.sequencer}
        if all(self._member.site < other for other in others):
            self._begin_claim(now)
        else:
            self._claim_soon(now, self._options.spread_ns)

    def _claim_in_turn(self, now: Nanoseconds) -> None:
        """There is no sequencer: the lowest member claims first, so that two seldom claim at once."""
        is_lowest = all(self._member.site < other for other in self._neighbours.recent(now))
        self._claim_soon(now, self._options.spread_ns if is_lowest else 3 * self._options.spread_ns)

    def _claim_soon(self, now: Nanoseconds, least_ns: Nanoseconds) -> None:
        """Claim after a partly random pause, unless another member does before."""
        if self._claim is None and not self._claim_armed and self._taking_part:
            spread_ns = round(self._member.random.random() * self._options.spread_ns)
            self._arm_claim(now, least_ns // 2 + spread_ns)

    def _begin_claim(self, now: Nanoseconds) -> None:
        """Claim to be the next epoch's sequencer."""
        old = self._epoch
        counter = max(old.counter, self._counter) + 1
        self._leader.begin_epoch()
        self._epoch = Epoch(counter, self._member.site)
        self._patience.epoch_ns = now
        self._vacant = self._has_left = False
        self._claims += 1
        self._gather_answers(now, old)

    def volunteer(self, now: Nanoseconds) -> None:
        """Be the sequencer before a member needs one."""
        self._epoch = NO_EPOCH
        self._begin_claim(now)

    def _gather_answers(self, now: Nanoseconds, old: Epoch) -> None:
        # The sequencer to be replaced is awaited as well, if it may live: it has delivered what it numbered.
        awaited = (self._member.lately(now) | self._neighbours.recent(now)) - {self._member.site}
        trips_ns = ROUND_TRIPS * (ASSUMED_NS if old == NO_EPOCH else self._number_requests.least_ns)
        wait_ns = max(self._options.gather_answers_ns, self._patience.lease_ns // 2, trips_ns)
        is_first = old == NO_EPOCH and not awaited
        self._claim = ClaimRound(awaited, self._numbers.through, now, wait_ns, is_first=is_first)
        self._pursue(now)

    def _pursue(self, now: Nanoseconds) -> None:
        """Claim once more, or be the sequencer if all have answered."""
        if self._claim is not None and self._claim.is_over(now):
            epoch = self._claim.refused_for()
            if epoch is None:
                self._lead(now, self._claim.known_by_all)
            else:
                self._give_in(now, epoch)
            return
        self._member.emit(Multicast(Claim(self._epoch.counter, self._numbers.through)))
        self._arm_claim(now, self._options.gather_answers_ns // CLAIM_REPEATS)

    def _arm_claim(self, now: Nanoseconds, wait_ns: Nanoseconds) -> None:
        self._claim_armed = True
        self._claim_due_ns = now + max(1, wait_ns)
        self._member.emit(SetTimer(CLAIM, max(1, wait_ns)))

    def _give_in(self, now: Nanoseconds, epoch: Epoch) -> None:
        """This member believed in an epoch far beyond the others', which they refuse: follow theirs."""
        if epoch.sequencer == self._member.site:
            self._counter, self._epoch = epoch.counter, NO_EPOCH
            self._begin_claim(now)
        else:
            self._counter = 0
            self._adopt(now, epoch)

    def _fire_claim(self, now: Nanoseconds) -> None:
        self._claim_armed = False
        if self._claim is not None:
            if now > self._claim_due_ns + self._options.tick_ns:
                self._claim.stood_still(now)
            self._pursue(now)
        elif self._vacant and self._taking_part and not self._leader.active:
            self._begin_claim(now)

    def _on_claim(self, now: Nanoseconds, sender: Site, pdu: Claim) -> None:
        self._on_epoch(now, sender, Epoch(pdu.counter, sender))
        self._answer(sender, pdu.through + 1)

    def _on_answer(self, now: Nanoseconds, sender: Site, pdu: Answer) -> None:
        tags = read_tags(pdu.tags, unknown=True)
        if tags is None:
            self._ignored += 1
            return
        if is_leap(pdu.first + len(tags), self._numbers.newest):
            self._ignored += 1
            tags = ()  # it has followed a liar, but it has answered
        epoch = Epoch(pdu.counter, pdu.sequencer)
        self._on_epoch(now, sender, epoch)
        if self._claim is None:
            return
        if epoch != self._epoch:
            if self._may_lead(epoch.sequencer) and not is_leap(epoch.counter, 0):
                self._claim.refuse(sender, epoch)
            return
        if epoch.counter == FIRST_EPOCH and tags and not self._numbers.newest:
            self._begin_claim(now)  # an earlier process of this name has given these numbers in this epoch
            return
        for number, tag in enumerate(tags, pdu.first):
            if tag:
                self._follower.learn(now, number, tag)
        self._claim.hear(sender, pdu.through)
        if self._claim.is_complete():
            self._pursue(now)

    # Being the sequencer

    def _lead(self, now: Nanoseconds, known_by_all: int) -> None:
        """Go on behind the greatest number that any member knows."""
        self._claim = None
        next_number = max(self._numbers.newest, self._number_requests.told) + 1
        if next_number > LAST_NUMBER:
            next_number, known_by_all = FIRST_NUMBER, 0
            self._follower.drop_from(FIRST_NUMBER)
        self._leader.begin(now, self._epoch.counter, next_number, known_by_all)
        self._announce(now, at_once=True)

    def _announce(self, now: Nanoseconds, *, at_once: bool = False) -> None:
        if not self._leader.announce(now, at_once=at_once):
            self._confirm(now)

    def _confirm(self, now: Nanoseconds) -> None:
        """This process stood still: number nothing before it is known that no member has taken over."""
        self._leader.end()
        self._gather_answers(now, self._epoch)

    def _fire_gather(self, now: Nanoseconds) -> None:
        if self._leader.active:
            self._announce(now, at_once=True)

    def _on_left(self, now: Nanoseconds, last: int) -> None:
        """An announcement has left this host."""
        if self._leader.active and not self._leader.on_left(now, last):
            self._confirm(now)

    def _fire_tick(self, now: Nanoseconds) -> None:
        if self._leader.active and not self._leader.tick(now):
            self._confirm(now)

    def _on_tag_request(self, now: Nanoseconds, sender: Site, pdu: TagRequest) -> None:
        tags = read_tags(pdu.tags)
        if tags is None:
            self._ignored += 1
        elif self._leader.active:
            self._leader.take_all(sender, tags, pdu.first, pdu.last)
            self._announce(now)
        elif self._claim is None:
            self._answer(sender, self._numbers.newest + 1)  # tell who the sequencer is

    def _on_ask(self, now: Nanoseconds, sender: Site, pdu: Ask) -> None:  # noqa: ARG002
        tags = self._number_requests.listed()
        if sender == self._epoch.sequencer and tags and self._taking_part:
            self._patience.heard_ns = now
            self._member.emit(Send(sender, TagRequest(tags, 1, 0)))

    _words: Final[dict[type[Pdu], Callable[..., None]]] = {
        Numbered: _on_numbered,
        TagRequest: _on_tag_request,
        Claim: _on_claim,
        Answer: _on_answer,
        Ask: _on_ask,
        Farewell: _on_farewell,
    }
    _timers: Final[dict[str, Callable[..., None]]] = {
        GATHER: _fire_gather,
        TICK: _fire_tick,
        ASK: _fire_ask,
        CLAIM: _fire_claim,
    }
