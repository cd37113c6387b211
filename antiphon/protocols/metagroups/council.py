"""The council: all sites of a cluster, agreeing on one version of the table after another.

Each site has two parts in it. As a voter it promises to take part in no earlier attempt, reports, and accepts
a decision once it holds all that it must deliver by it. As the coordinator, if it is the one, it finds out
what has to change and makes attempts. A version is put in force by whoever knows that it was decided; those
who hear of a version that they have not accepted, or in which they are not, were left out, and begin anew.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, ClassVar, Final
from typing import Protocol as Interface

from antiphon.core.effects import Disagreed, Effect, Multicast, Send, SetTimer
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups.attempt import Attempt, Outcome, is_vote_for
from antiphon.protocols.metagroups.company import MOST_STRANGERS, Company
from antiphon.protocols.metagroups.parts import cut
from antiphon.protocols.metagroups.pdus import (
    BUSY,
    FINISHED,
    Accept,
    Accepted,
    Ballot,
    Decision,
    Goodbye,
    Holding,
    Install,
    Life,
    MetaGroupsConfiguration,
    Origin,
    Prepare,
    Progress,
    Refuse,
    Report,
    TreeId,
    Vote,
    Word,
)
from antiphon.protocols.metagroups.table import Layout, layout_of, plan_trees

NO_BALLOT: Final[Ballot] = (0, "")


class Floor(Interface):
    """The site that a council member speaks for."""

    @property
    def layout(self) -> Layout | None: ...
    @property
    def life(self) -> Life: ...
    @property
    def stopped(self) -> frozenset[TreeId]: ...
    @property
    def over(self) -> frozenset[TreeId]:
        """Retiring trees that all sites are known to be done with."""
        ...

    def word(self) -> Word: ...
    def take_progress(self, now: Nanoseconds, stages: Iterable[tuple[TreeId, int]]) -> None:
        """So far are all sites with these trees."""

    def stop(self, trees: Iterable[TreeId]) -> None:
        """Let nothing more happen on these trees."""

    def holdings(self) -> tuple[Holding, ...]:
        """What this site has of the trees that are stopped."""
        ...

    def fetch(self, decision: Decision) -> bool:
        """Ask for what is lacking to deliver what a decision says; whether nothing is."""
        ...

    def install(self, now: Nanoseconds, decision: Decision) -> None: ...
    def begin_anew(self, now: Nanoseconds) -> None: ...


class Council:
    """One site's part in agreeing on the table."""

    def __init__(
        self,
        site: Site,
        floor: Floor,
        configuration: MetaGroupsConfiguration,
        random: Random,
        effects: list[Effect],
    ) -> None:
        self._site: Final = site
        self._floor: Final = floor
        self._knobs: Final = configuration
        self._rules: Final = configuration.rules
        self._random: Final = random
        self._effects: Final = effects
        self.company: Final = Company(site, configuration.suspect_ns)
        self._promised: tuple[int, Ballot] = (0, NO_BALLOT)
        """The version and the attempt to make it that this site takes part in."""
        self._vote: Vote | None = None
        self._pending: tuple[Site, Accept] | None = None
        """A decision that is accepted as soon as all that it needs is here."""
        self._attempt: Attempt | None = None
        self._rounds = 0
        """The greatest round heard of."""
        self._is_timed = False
        self._rivals_ns: dict[Site, Nanoseconds] = {}
        """When others without a cluster were last heard."""
        self._cluster_ns: Nanoseconds = 0
        """When anybody with a cluster was last heard, or this site began, while it has none."""
        self._bound: tuple[Origin, int, Nanoseconds] | None = None
        """Into which cluster, by which version, this site is being let in while it has none, and when it last
        heard of that."""
        self._strangers: dict[Site, str] = {}
        """Sites that keep other rules, as was said."""
        self._told: dict[TreeId, int] = {}
        """How far all sites were with trees that hand over, when that was told last."""
        self.attempts = 0

    # From the site itself

    def settle(self, now: Nanoseconds, layout: Layout) -> None:
        """A version of the table is in force."""
        self._vote = self._pending = self._attempt = None
        self._promised = (layout.version + 1, NO_BALLOT)
        self._rounds = 0
        self._told = {}
        self.company.settle(now, layout)
        self.look(now)

    def forget(self, now: Nanoseconds) -> None:
        """This site begins anew."""
        self._vote = self._pending = self._attempt = None
        self._promised = (0, NO_BALLOT)
        self._rivals_ns.clear()
        self._strangers.clear()
        self._cluster_ns = now
        self._bound = None
        self._rounds = 0
        self.company.forget(now)

    def wish(self, now: Nanoseconds) -> None:
        """This site wants to sit elsewhere."""
        layout = self._floor.layout
        if layout is None:
            return
        word = self._floor.word()
        chief = self.company.chief(now, layout)
        if chief != self._site:
            self._effects.append(Send(chief, word))
        elif self.company.wish(self._site, word, layout):
            self._set_timer(self._knobs.gather_ns)

    def beat(self, now: Nanoseconds) -> bool:
        """Send word, as is due now and then; whether this site should found a cluster."""
        layout, word = self._floor.layout, self._floor.word()
        if layout is None:
            self._effects.append(Multicast(word))
            return self._is_founder(now)
        chief = self.company.chief(now, layout)
        if chief == self._site:
            self._effects.append(Multicast(word))
            self._tell_progress(now)
            self.company.wish(self._site, word, layout)
            self.look(now)
        else:
            self._effects.append(Send(chief, word))
        return False

    def tell_stages(self, now: Nanoseconds) -> None:
        """This site has got further with a tree that hands over."""
        layout = self._floor.layout
        assert layout is not None, "only a site in a cluster has trees"
        chief = self.company.chief(now, layout)
        if chief == self._site:
            self._note_stages(now)
        else:
            self._effects.append(Send(chief, self._floor.word()))

    def _stages(self) -> dict[TreeId, int]:
        """How far all sites are with each tree that hands over, as far as is known here."""
        layout = self._floor.layout
        if layout is None or not layout.retiring:
            return {}
        own = dict(self._floor.word().stages)
        return {
            tree: min(own.get(tree, FINISHED), self.company.stage(tree, layout)) for tree in layout.retiring
        }

    def _note_stages(self, now: Nanoseconds) -> None:
        """Tell all if all have got further."""
        stages = self._stages()
        if stages != self._told:
            self._told = stages
            self._tell_progress(now)

    def _tell_progress(self, now: Nanoseconds) -> None:
        stages = tuple(sorted((tree, stage) for tree, stage in self._stages().items() if stage > BUSY))
        if stages:
            self._effects.append(Multicast(Progress(stages)))
            self._floor.take_progress(now, stages)

    def _hear_progress(self, now: Nanoseconds, sender: Site, pdu: Progress) -> None:
        layout = self._floor.layout
        if layout is not None and sender in layout.lives:
            self._floor.take_progress(now, pdu.stages)

    def _is_founder(self, now: Nanoseconds) -> bool:
        """Whether nobody with a cluster was heard for long, and nobody without one that comes before us."""
        since_ns = now - self._knobs.found_ns
        heard = [site for site, heard_ns in self._rivals_ns.items() if heard_ns > since_ns]
        return self._cluster_ns <= since_ns and min([*heard, self._site]) == self._site

    def look(self, now: Nanoseconds) -> None:
        """If this site coordinates and something has to change, see to it soon."""
        layout = self._floor.layout
        if layout is None or self._attempt is not None or self.company.chief(now, layout) != self._site:
            return
        self.company.drop_stale(now, layout)
        if self._floor.stopped or self.company.wishes or self.company.gone(now, layout.lives):
            self._set_timer(self._knobs.gather_ns)

    def _set_timer(self, after_ns: Nanoseconds) -> None:
        if not self._is_timed:
            self._is_timed = True
            self._effects.append(SetTimer("council", after_ns))

    def resume(self) -> None:
        """All timers stood still: none is set any more."""
        self._is_timed = False
        if self._attempt is not None or self._pending is not None:
            self._set_timer(self._knobs.repair_ns)

    def fire(self, now: Nanoseconds) -> None:
        """Go on with what has been begun, or begin."""
        self._is_timed = False
        layout = self._floor.layout
        if self._pending is not None:
            self._try_to_accept(now)
            self._set_timer(self._knobs.repair_ns)
        if self._attempt is not None:
            self._pursue(now, self._attempt)
            self._set_timer(self._knobs.repair_ns)
        elif layout is not None and self.company.chief(now, layout) == self._site:
            gone = self.company.gone(now, layout.lives)
            if self._floor.stopped or gone or self.company.wishes:
                self._begin(now, layout, self._concerned(layout, gone))

    # From others

    def receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        if isinstance(pdu, Word | Prepare | Install) and pdu.rules != self._rules:
            self._keep_apart(now, sender, pdu)
            return
        self.company.hear(now, sender)
        self._words[type(pdu)](self, now, sender, pdu)

    def _hear_word(self, now: Nanoseconds, sender: Site, pdu: Word) -> None:
        layout = self._floor.layout
        if layout is None:
            if pdu.origin is None:
                self._rivals_ns[sender] = now
            else:
                self._cluster_ns = now
            return
        if pdu.origin is None:
            if layout.lives.get(sender) == pdu.life:
                self._say(Install(self._rules, layout.decision), sender)
            elif self.company.wish(sender, pdu, layout):
                self._take_stock(now, layout)
        elif self._is_rival(now, sender, pdu.origin, layout):
            return
        elif pdu.version < layout.version:
            self._say(Install(self._rules, layout.decision), sender)
        elif pdu.version > layout.version:
            self._effects.append(Send(sender, self._floor.word()))
        elif layout.lives.get(sender) == pdu.life:
            if layout.retiring:
                self.company.note_stages(sender, pdu)
                self._note_stages(now)
            if self.company.wish(sender, pdu, layout):
                self.look(now)

    def _take_stock(self, now: Nanoseconds, layout: Layout) -> None:
        """Somebody wants to come in, and may have lost its memory: see whether this cluster can go on.

        If those who have not are too few, no version can ever follow by a vote, whoever comes back. So this
        site gives up what it knows, as others will who find the same, and they found another cluster.
        """
        if layout.is_quorum(self.company.remembering(layout)):
            self.look(now)
        else:
            self._floor.begin_anew(now)

    def _keep_apart(self, now: Nanoseconds, sender: Site, pdu: Word | Prepare | Install) -> None:
        """Have nothing to do with a site that keeps other rules, but say so; and found nothing beside it."""
        if not isinstance(pdu, Word):
            return
        if pdu.origin is not None:
            self._cluster_ns = now
        if self._strangers.get(sender) != pdu.rules and len(self._strangers) < MOST_STRANGERS:
            self._strangers[sender] = pdu.rules
            own, others = self._rules.split(), pdu.rules.split()
            here = " ".join(word for word in own if word not in others)
            there = " ".join(word for word in others if word not in own)
            self._effects.append(Disagreed(sender, f"It keeps other rules: {there}, and here {here}."))

    def _is_rival(self, now: Nanoseconds, sender: Site, origin: Origin, layout: Layout) -> bool:
        """Whether this comes from another cluster; the one that was founded later gives way."""
        own = layout.decision.origin
        if origin == own:
            return False
        if origin < own:
            self._floor.begin_anew(now)
        else:
            self._effects.append(Send(sender, self._floor.word()))
        return True

    def _hear_goodbye(self, now: Nanoseconds, sender: Site, pdu: Goodbye) -> None:
        layout = self._floor.layout
        if layout is not None and layout.lives.get(sender) == pdu.life:
            self.company.miss(sender)
            self.look(now)

    # The coordinator

    def _concerned(self, layout: Layout, gone: frozenset[Site]) -> frozenset[TreeId]:
        """The trees that have to be stopped, as far as can be told now."""
        wishes = self.company.wishes
        seats = [wishes.get(site, seat) for site, seat in layout.seats.items() if site not in gone]
        seats += [wish for site, wish in wishes.items() if site not in layout.seats]
        plan = plan_trees(layout, seats, self._floor.stopped, self._knobs.shape)
        return plan.ended

    def _begin(self, now: Nanoseconds, layout: Layout, stop: frozenset[TreeId]) -> None:
        self.attempts += 1
        self._rounds += 1
        ballot = (self._rounds, self._site)
        invited = {*layout.lives, *(site for site, _ in self.company.lives_wanted(layout))}
        attempt = self._attempt = Attempt(layout, ballot, invited, stop, now)
        self._hear_prepare(now, self._site, self._prepare(layout, attempt))
        self._set_timer(self._knobs.repair_ns)
        if self._attempt is attempt and attempt.decision is None:
            self._ask(attempt, attempt.invited)

    def _prepare(self, layout: Layout, attempt: Attempt) -> Prepare:
        stop, origin = tuple(sorted(attempt.stop)), layout.decision.origin
        return Prepare(self._rules, origin, attempt.version, attempt.ballot[0], stop)

    def _ask(self, attempt: Attempt, sites: Iterable[Site]) -> None:
        layout = self._floor.layout
        assert layout is not None, "only a site in a cluster makes attempts"
        others = tuple(sorted(site for site in sites if site != self._site))
        if others:
            self._effects.append(Multicast(self._prepare(layout, attempt), others))

    def _pursue(self, now: Nanoseconds, attempt: Attempt) -> None:
        """Ask again whoever has not answered; go on without those who are silent for too long."""
        wishes = self.company.wishes
        if any(
            site in wishes and report.life < wishes[site].life for site, report in attempt.reports.items()
        ):
            self._again(now, attempt)  # somebody has lost its memory since it reported
        elif attempt.decision is None:
            self._ask(attempt, attempt.invited - attempt.reports.keys())
            self._conclude(now, attempt)
        elif any(self.company.is_silent(now, site, attempt.since_ns) for site in attempt.open()):
            self._again(now, attempt)
        else:
            self._propose(attempt, attempt.open())

    def _silent(self, now: Nanoseconds, attempt: Attempt) -> frozenset[Site]:
        gone = self.company.gone(now, attempt.invited)
        return gone | {
            site for site in attempt.invited if self.company.is_silent(now, site, attempt.since_ns)
        }

    def _conclude(self, now: Nanoseconds, attempt: Attempt) -> None:
        gone = self._silent(now, attempt)
        over = self._floor.over | {tree for tree, stage in self._stages().items() if stage == FINISHED}
        outcome = attempt.conclude(self.company.wishes, gone, over, self._knobs.shape)
        if outcome is Outcome.STOP_MORE:
            self._again(now, attempt)
        elif outcome is Outcome.NOTHING:
            self._attempt = None
        elif outcome is Outcome.DECIDED:
            attempt.since_ns = now
            self._propose(attempt, attempt.open())
            assert attempt.decision is not None
            accept = Accept(attempt.version, attempt.ballot[0], attempt.adopted, attempt.decision)
            if self._site in attempt.open():
                self._hear_accept(now, self._site, accept)

    def _again(self, now: Nanoseconds, attempt: Attempt) -> None:
        layout = self._floor.layout
        assert layout is not None, "only a site in a cluster makes attempts"
        gone = self._silent(now, attempt)
        self._begin(now, layout, attempt.stop | self._concerned(layout, gone))

    def _propose(self, attempt: Attempt, sites: Iterable[Site]) -> None:
        assert attempt.decision is not None
        others = tuple(sorted(site for site in sites if site != self._site))
        if others:
            accept = Accept(attempt.version, attempt.ballot[0], attempt.adopted, attempt.decision)
            self._say(accept, others)

    def _hear_report(self, now: Nanoseconds, sender: Site, pdu: Report) -> None:
        attempt = self._attempt_meant(pdu.version, pdu.round)
        if attempt is not None and attempt.decision is None and sender in attempt.invited:
            attempt.reports[sender] = pdu
            self._conclude(now, attempt)

    def _hear_accepted(self, now: Nanoseconds, sender: Site, pdu: Accepted) -> None:
        attempt = self._attempt_meant(pdu.version, pdu.round)
        if attempt is None or attempt.decision is None or sender not in attempt.reports:
            return
        if attempt.reports[sender].life == pdu.life:
            attempt.accepted.add(sender)
        if not attempt.open():
            decision = attempt.decision
            self._say(Install(self._rules, decision), None)
            self._put_in_force(now, decision)

    def _hear_refuse(self, now: Nanoseconds, sender: Site, pdu: Refuse) -> None:  # noqa: ARG002
        """Somebody takes part in a later attempt: give way for a while."""
        attempt = self._attempt
        if attempt is not None and attempt.version == pdu.version and pdu.round >= attempt.ballot[0]:
            self._rounds = max(self._rounds, pdu.round)
            self._attempt = None
            self._is_timed = False
            self._set_timer(self._random.randint(self._knobs.gather_ns, 4 * self._knobs.gather_ns))

    def _attempt_meant(self, version: int, round_: int) -> Attempt | None:
        attempt = self._attempt
        fits = attempt is not None and attempt.version == version and attempt.ballot[0] == round_
        return attempt if fits else None

    # The voter

    def _promises(self, sender: Site, version: int, round_: int) -> bool:
        """Take part in this attempt and in none before; refuse if there is a later one."""
        wanted = (version, (round_, sender))
        if wanted < self._promised:
            self._effects.append(Send(sender, Refuse(version, self._promised[1][0])))
            return False
        self._promised = wanted
        self._rounds = max(self._rounds, round_)
        if self._attempt is not None and self._attempt.ballot < wanted[1]:
            self._attempt = None
        if self._pending is not None and (self._pending[1].round, self._pending[0]) < wanted[1]:
            self._pending = None
        return True

    def _is_for_us(self, sender: Site, version: int) -> bool:
        """Whether an attempt is about the version that comes next here; help whoever knows less."""
        layout, vote = self._floor.layout, self._vote
        if layout is None:
            return vote is None or version <= vote.decision.version
        if version == layout.version + 1:
            return True
        if version <= layout.version:
            self._say(Install(self._rules, layout.decision), sender)
        else:
            self._effects.append(Send(sender, self._floor.word()))
        return False

    def _hear_prepare(self, now: Nanoseconds, sender: Site, pdu: Prepare) -> None:
        layout = self._floor.layout
        if layout is None:
            if not self._binds(now, pdu):
                return
        elif self._is_rival(now, sender, pdu.origin, layout):
            return
        if not self._is_for_us(sender, pdu.version) or not self._promises(sender, pdu.version, pdu.round):
            return
        self._floor.stop(pdu.stop)
        vote = self._vote
        if vote is not None and vote.decision.version != pdu.version:
            vote = None
        report = Report(pdu.version, pdu.round, self._floor.life, vote, self._floor.holdings())
        if sender == self._site:
            self._hear_report(now, sender, report)
        else:
            self._say(report, sender)

    def _say(self, pdu: Report | Accept | Install, to: Site | tuple[Site, ...] | None) -> None:
        """Send one of the PDUs that can be large; to everybody if nobody is named."""
        for part in cut(pdu):
            self._effects.append(Send(to, part) if isinstance(to, str) else Multicast(part, to))

    def _binds(self, now: Nanoseconds, pdu: Prepare) -> bool:
        """Whether a site without a cluster takes part in this attempt.

        Not while an older cluster calls it, or the same one to a later version. Otherwise it begins anew, if
        it is bound elsewhere: what it has promised, or accepted and may be in force with a seat for it, then
        concerns a life that is over.
        """
        self._cluster_ns = now
        if self._bound is not None:
            origin, version, called_ns = self._bound
            is_worse = (origin, -version) < (pdu.origin, -pdu.version)
            if is_worse and now - called_ns < self._knobs.suspect_ns:
                return False
            is_later = origin == pdu.origin and version < pdu.version and self._vote is None
            if (origin, version) != (pdu.origin, pdu.version) and not is_later:
                self._floor.begin_anew(now)
        self._bound = (pdu.origin, pdu.version, now)
        return True

    def _hear_accept(self, now: Nanoseconds, sender: Site, pdu: Accept) -> None:
        layout = self._floor.layout
        origin = self._bound and self._bound[0] if layout is None else layout.decision.origin
        if pdu.decision.origin != origin:
            return
        if not self._is_for_us(sender, pdu.version) or not self._promises(sender, pdu.version, pdu.round):
            return
        self._pending = (sender, pdu)
        self._try_to_accept(now)
        if self._pending is not None:
            self._set_timer(self._knobs.repair_ns)

    def _try_to_accept(self, now: Nanoseconds) -> None:
        """Accept if all that is needed is here; what was adopted is accepted in any case."""
        if self._pending is None:
            return
        sender, pdu = self._pending
        decision = pdu.decision
        whole = is_vote_for(self._vote, decision) or self._floor.fetch(decision)
        if not whole and not pdu.adopted:
            return
        self._pending = None
        self._vote = Vote((pdu.round, sender), pdu.adopted, whole, decision)
        accepted = Accepted(pdu.version, pdu.round, self._floor.life)
        if sender == self._site:
            self._hear_accepted(now, sender, accepted)
        else:
            self._effects.append(Send(sender, accepted))

    @property
    def pending(self) -> Decision | None:
        """A decision for which something is lacking here."""
        return None if self._pending is None else self._pending[1].decision

    def have_fetched(self, now: Nanoseconds) -> None:
        """Something that was lacking has come."""
        self._try_to_accept(now)

    def _hear_install(self, now: Nanoseconds, sender: Site, pdu: Install) -> None:
        layout, decision = self._floor.layout, pdu.decision
        if layout is not None:
            if self._is_rival(now, sender, decision.origin, layout) or decision.version <= layout.version:
                return
        else:
            self._cluster_ns = now
        self._put_in_force(now, decision)

    def _put_in_force(self, now: Nanoseconds, decision: Decision) -> None:
        """Go on with a version that was decided, or begin anew where it was decided without us."""
        layout = self._floor.layout
        is_next = layout is None or decision.version == layout.version + 1
        is_accepted = is_vote_for(self._vote, decision)
        seat = layout_of(decision, self._knobs.shape, bypass=self._knobs.bypass).seats.get(self._site)
        is_in = seat is not None and seat.life == self._floor.life
        if is_next and is_accepted and is_in:
            self._floor.install(now, decision)
        elif layout is not None or is_in:
            self._floor.begin_anew(now)

    _words: ClassVar[dict[type[Pdu], Callable[["Council", Nanoseconds, Site, Any], None]]] = {
        Word: _hear_word,
        Progress: _hear_progress,
        Goodbye: _hear_goodbye,
        Prepare: _hear_prepare,
        Report: _hear_report,
        Accept: _hear_accept,
        Accepted: _hear_accepted,
        Refuse: _hear_refuse,
        Install: _hear_install,
    }
