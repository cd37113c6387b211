"""A site: its wishes, its trees, and its seat in the council, held together."""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, ClassVar

from antiphon.core.effects import (
    Absent,
    Admitted,
    Appeared,
    Effect,
    Joined,
    Left,
    Multicast,
    Present,
    Rejected,
    SetTimer,
    Vanished,
)
from antiphon.core.fields import LONGEST_NAME
from antiphon.core.ids import Group, Site
from antiphon.core.inputs import Start
from antiphon.core.packing import Packed
from antiphon.core.protocol import PeerReport
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups.checks import makes_sense
from antiphon.protocols.metagroups.council import Council
from antiphon.protocols.metagroups.grove import Grove
from antiphon.protocols.metagroups.parts import Parts, put_together
from antiphon.protocols.metagroups.pdus import (
    Accept,
    Accepted,
    Body,
    Copy,
    Decision,
    Entry,
    Goodbye,
    Held,
    Install,
    Mark,
    MetaGroupsConfiguration,
    Part,
    Prepare,
    Progress,
    Query,
    Refuse,
    Report,
    Request,
    Seat,
    Taken,
    Token,
    TokenRequest,
    Want,
    Word,
)
from antiphon.protocols.metagroups.table import NO_FOUNDER, Layout, check_room, first_decision, layout_of

CHANGING = "The members of the group are being agreed on anew; try again."


class Member:
    """Everything but the checks of what an application hands in."""

    def __init__(
        self,
        site: Site,
        seats: tuple[Seat, ...],
        configuration: MetaGroupsConfiguration,
        random: Random,
    ) -> None:
        self.ignored = 0
        self._site = site
        self._seats = seats
        self._knobs = configuration
        self._effects: list[Effect] = []
        self._wanted = {group for seat in seats if seat.site == site for group in seat.groups}
        check_room(None, site, self._wanted)
        self._serial = 1
        self._next_number = 0
        self._present = False
        self._is_new = False
        """Whether it has not said yet that it is present, and nobody else that it is absent."""
        self._parts = Parts()
        self._grove = Grove(site, configuration, self._effects)
        self._council = Council(site, self, self._grove, configuration, random, self._effects)
        self._changes = self._lost = self._spells = 0

    def effects(self) -> list[Effect]:
        found = list(self._effects)
        self._effects.clear()
        return found

    def figures(self) -> dict[str, int]:
        grove, layout = self._grove, self._grove.layout
        return {
            "ignored": self.ignored,
            "version": 0 if layout is None else layout.version,
            "sites": 0 if layout is None else len(layout.lives),
            "trees": 0 if layout is None else len(layout.trees),
            "kept": grove.kept(),
            "waiting": grove.waiting(),
            "repeated": grove.repeated(),
            "changes": self._changes,
            "stops": grove.stops,
            "attempts": self._council.attempts,
            "begun_anew": self._spells,
            "lost": self._lost,
        }

    def incarnation_of(self, site: Site) -> int:
        """By the table, and by what the site has said since."""
        if site == self._site:
            return self._grove.life[0]
        layout = self._grove.layout
        seated = 0 if layout is None or site not in layout.lives else layout.lives[site][0]
        return max(seated, self._council.company.incarnation_of(site))

    def peers(self, _now: Nanoseconds) -> dict[Site, PeerReport]:
        """Of primary sites, how many of our messages wait for them; of the others when they were heard."""
        layout, waiting = self._grove.layout, list(self._grove.waiting_for())
        full = len(waiting) >= self._knobs.admission
        lags: Counter[Site] = Counter()
        for site, messages in waiting:
            lags[site] += messages
        return {
            site: PeerReport(
                lags.get(site), self._council.company.heard_ns(site), None, None,
                full and site == waiting[0][0],
            )
            for site in ([] if layout is None else list(layout.lives))
            if site != self._site
        }  # fmt: skip

    # Inputs

    def start(self, now: Nanoseconds, event: Start) -> None:
        self._grove.begin((event.incarnation, 0))
        self._next_number = event.next_number
        self._is_new = not event.returning
        self._effects.append(SetTimer("word", self._knobs.heartbeat_ns))
        self._council.forget(now)
        if event.incarnation:
            self._council.beat(now)
            return
        self._present = True
        seats = tuple(sorted(self._seats, key=lambda seat: seat.site))
        self._adopt(now, first_decision(NO_FOUNDER, seats, self._knobs.shape))

    def admit(self, now: Nanoseconds, group: Group, bodies: Packed) -> None:
        layout = self._grove.layout
        tree = None if layout is None else layout.tree_to(group)
        reason = None
        if layout is None:
            reason = "This site is in no cluster yet; try again."
        elif tree is None:
            reason = f"The group {group} has no members now."
        elif tree.id in self._grove.stopped:
            reason = CHANGING
        elif self._grove.waiting() >= self._knobs.admission:
            reason = "As many batches as are admitted at once are not stable yet."
        if reason is not None or tree is None:
            self._effects.append(Rejected(reason or CHANGING))
            return
        number, self._next_number = self._next_number, self._next_number + len(bodies)
        self._effects.append(Admitted(number, len(bodies), bodies.size, tree.members[group], group))
        self._grove.admit(tree.id, number, group, bodies)
        self._end(now)

    def join(self, now: Nanoseconds, group: Group) -> None:
        if group in self._wanted:
            if group in self._grove.groups:
                self._effects.append(Joined(group))
            return
        wanted = self._wanted | {group}
        check_room(self._grove.layout, self._site, wanted)
        self._wish(now, wanted)

    def leave(self, now: Nanoseconds, group: Group) -> None:
        if group not in self._grove.groups:
            self._effects.append(Left(group))
        if group in self._wanted:
            self._wish(now, self._wanted - {group})

    def _wish(self, now: Nanoseconds, wanted: set[Group]) -> None:
        self._wanted = wanted
        self._serial += 1
        self._council.wish(now)

    def receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        act = self._words.get(type(pdu))
        is_named = sender != self._site and 0 < len(sender) <= LONGEST_NAME
        if act is None or not is_named or not makes_sense(pdu):
            self.ignored += 1
            return
        act(self, now, sender, pdu)
        self._end(now)

    def fire(self, now: Nanoseconds, name: str) -> None:
        if name == "word":
            self._effects.append(SetTimer("word", self._knobs.heartbeat_ns))
            if self._council.beat(now):
                self._found(now)
        elif name == "council":
            self._council.fire(now)
        else:
            self._grove.fire(now, name)
        self._end(now)

    def depart(self) -> None:
        self._be_absent()
        if self._knobs.says_goodbye:
            self._effects.append(Multicast(Goodbye(self._grove.life)))

    def come_back(self, now: Nanoseconds) -> None:
        """Go on from where it was; if the others have gone on without it, it will hear so."""
        self._effects.append(SetTimer("word", self._knobs.heartbeat_ns))
        self._council.company.listen_anew(now)
        self._council.resume()
        if self._grove.layout is not None:
            self._be_present()
        self._council.beat(now)
        self._grove.resume()
        self._end(now)

    def suspect(self, now: Nanoseconds, site: Site) -> None:
        self._council.company.miss(site)
        self._council.look(now)

    def restore(self, now: Nanoseconds, site: Site) -> None:
        self._council.company.hear(now, site)

    def _end(self, now: Nanoseconds) -> None:
        """What follows from any input."""
        if self._grove.hand_over(now):
            self._council.tell_stages(now)
        self._grove.send(now)

    # Presence

    def _be_absent(self) -> None:
        if self._present:
            self._present = False
            self._effects.append(Absent())

    def _be_present(self) -> None:
        self._is_new = False
        if not self._present:
            self._present = True
            self._effects.append(Present())

    # What the council asks of its site

    def word(self) -> Word:
        layout = self._grove.layout
        wish = (self._grove.life, self._serial, tuple(sorted(self._wanted)), self._knobs.rules)
        if layout is None:
            return Word(None, 0, *wish)
        return Word(layout.decision.origin, layout.version, *wish, self._grove.stages())

    def install(self, now: Nanoseconds, decision: Decision) -> None:
        self._grove.end(decision.endings)
        self._adopt(now, decision)

    def begin_anew(self, now: Nanoseconds) -> None:
        """The others have gone on without this site: forget everything, and ask to be let in.

        One that is new may have a seat already in what others know: it has missed what comes to that.
        """
        if self._is_new:
            self._is_new = False
            self._effects.append(Absent())
        self._be_absent()
        self._spells += 1
        self._lost += self._grove.waiting()
        self._leave_behind()
        incarnation, spell = self._grove.life
        self._grove.begin((incarnation, spell + 1))
        self._council.forget(now)
        self._council.beat(now)

    def _leave_behind(self) -> None:
        """Nobody counts any more for a site that begins anew."""
        layout = self._grove.layout
        for site in sorted(() if layout is None else layout.lives):
            if site != self._site:
                self._effects.append(Vanished(site, "This site was left out and begins anew."))

    def _found(self, now: Nanoseconds) -> None:
        """Nobody is there: begin a cluster alone."""
        life = self._grove.life
        seat = Seat(self._site, life, self._serial, tuple(sorted(self._wanted)))
        self._adopt(now, first_decision((*life, self._site), (seat,), self._knobs.shape))

    def _adopt(self, now: Nanoseconds, decision: Decision) -> None:
        """A version of the table is in force here."""
        before = self._grove.layout
        layout = layout_of(decision, self._knobs.shape, bypass=self._knobs.bypass)
        self._changes += before is not None
        self._grove.adopt(layout)
        self._be_present()
        self._keep_wish(layout)
        self._tell_company(before, layout)
        self._council.settle(now, layout)
        self._grove.take_turns(now)

    def _keep_wish(self, layout: Layout) -> None:
        """Should the table have another wish for this site's latest, it has a later one."""
        seat = layout.seats[self._site]
        if seat.serial > self._serial or (seat.serial == self._serial and set(seat.groups) != self._wanted):
            self._serial = seat.serial + 1

    def _tell_company(self, before: Layout | None, layout: Layout) -> None:
        known = {} if before is None else before.lives
        for site in sorted({*known, *layout.lives} - {self._site}):
            if known.get(site) == layout.lives.get(site):
                continue
            if site in known:
                self._effects.append(Vanished(site, "It was silent, or has begun anew."))
            if site in layout.lives:
                self._effects.append(Appeared(site))

    # What others send

    def _take_message(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        if not self._grove.receive(now, sender, pdu):
            self.ignored += 1

    def _take_copy(self, now: Nanoseconds, sender: Site, pdu: Copy) -> None:
        if self._grove.take_copy(now, sender, pdu, self._council.pending):
            self._council.have_fetched(now)

    def _take_part(self, now: Nanoseconds, sender: Site, pdu: Part) -> None:
        pieces = self._parts.take(sender, pdu)
        if pieces is not None:
            whole = put_together(pdu.kind, pdu.name, pieces)
            if whole is None or not makes_sense(whole):
                self.ignored += 1
            else:
                self._hear(now, sender, whole)

    def _hear(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        self._council.receive(now, sender, pdu)

    _words: ClassVar[dict[type[Pdu], Callable[["Member", Nanoseconds, Site, Any], None]]] = {
        Request: _take_message,
        TokenRequest: _take_message,
        Taken: _take_message,
        Query: _take_message,
        Entry: _take_message,
        Token: _take_message,
        Body: _take_message,
        Mark: _take_message,
        Held: _take_message,
        Want: _take_message,
        Copy: _take_copy,
        Word: _hear,
        Progress: _hear,
        Goodbye: _hear,
        Prepare: _hear,
        Report: _hear,
        Accept: _hear,
        Accepted: _hear,
        Refuse: _hear,
        Install: _hear,
        Part: _take_part,
    }
