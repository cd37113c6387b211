"""The council: all sites of a cluster, agreeing on one version of the table after another.

Each site has two parts in it: it is a `voter` and, if its turn has come, the `coordinator`; the two speak to
one another as to those of other sites. Here is what comes before: whose words concern this site at all, by
their rules, cluster and version. A version is put in force by whoever knows that it was decided; those who
hear of a version that they have not accepted, or in which they are not, were left out, and begin anew.
"""

from collections.abc import Callable
from random import Random
from typing import Any, ClassVar, Final
from typing import Protocol as Interface

from antiphon.core.effects import Disagreed, Effect, Multicast, Send
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups.company import Company
from antiphon.protocols.metagroups.coordinator import STUCK_AFTER, Alarm, Coordinator
from antiphon.protocols.metagroups.credible import can_follow, is_heard_of
from antiphon.protocols.metagroups.grove import Grove
from antiphon.protocols.metagroups.handover import Handover
from antiphon.protocols.metagroups.parts import said
from antiphon.protocols.metagroups.pdus import (
    MOST_SITES,
    Accept,
    Accepted,
    Decision,
    Goodbye,
    Install,
    Life,
    MetaGroupsConfiguration,
    Origin,
    Prepare,
    Progress,
    Refuse,
    Report,
    Word,
)
from antiphon.protocols.metagroups.table import Layout
from antiphon.protocols.metagroups.voter import Voter

LATEST_VERSION: Final = 1 << 40
"""A site without a cluster is let in by no later version. There is always room to count on: a version a
millisecond takes 35 years."""


class Floor(Interface):
    """The site that a council member speaks for."""

    def word(self) -> Word: ...
    def install(self, now: Nanoseconds, decision: Decision) -> None: ...
    def begin_anew(self, now: Nanoseconds) -> None: ...


class Council:
    """One site's part in agreeing on the table."""

    def __init__(
        self,
        site: Site,
        floor: Floor,
        grove: Grove,
        configuration: MetaGroupsConfiguration,
        random: Random,
        effects: list[Effect],
    ) -> None:
        self._site: Final = site
        self._floor: Final = floor
        self._knobs: Final = configuration
        self._rules: Final = configuration.rules
        self._effects: Final = effects
        self._grove: Final = grove
        self.company: Final = Company(site, configuration.suspect_ns)
        self._handover: Final = Handover(site, grove, effects)
        self._alarm: Final = Alarm(effects)
        self._voter: Final = Voter(grove, effects)
        self._coordinator: Final = Coordinator(
            site, grove, self.company, self._handover, self._alarm, configuration, random, effects,
            lambda now, pdu: self._hear(now, site, pdu), floor.begin_anew,
        )  # fmt: skip
        self._rival_ns: Nanoseconds | None = None
        """When another without a cluster that comes before this site was last heard."""
        self._cluster_ns: Nanoseconds = 0
        """When anybody with a cluster was last heard, or this site began, while it has none."""
        self._bound: tuple[Origin, int, Nanoseconds] | None = None
        """Into which cluster, by which version, this site is being let in while it has none, and when it last
        heard of that."""
        self._strangers: dict[Site, str] = {}
        """Sites that keep other rules, as was said."""
        self._doubted: tuple[Origin, Nanoseconds] | None = None
        """A cluster to which this site should give way, or that has gone on without it, by hearsay, and since
        when it is said."""

    # From the site itself

    def settle(self, now: Nanoseconds, layout: Layout) -> None:
        """A version of the table is in force."""
        self._voter.begin(layout.version + 1)
        self._coordinator.forget()
        self._handover.forget()
        self._doubted = None
        self.company.settle(now, layout)
        self.look(now)

    def forget(self, now: Nanoseconds) -> None:
        """This site begins anew."""
        self._voter.begin(0)
        self._coordinator.forget()
        self._handover.forget()
        self._rival_ns = None
        self._strangers.clear()
        self._cluster_ns = now
        self._bound = None
        self._doubted = None
        self.company.forget(now)

    def wish(self, now: Nanoseconds) -> None:
        """This site wants to sit elsewhere."""
        layout = self._grove.layout
        if layout is None:
            return
        word = self._floor.word()
        chief = self.company.chief(now, layout)
        if chief != self._site:
            self._effects.append(Send(chief, word))
        elif self.company.wish(self._site, word, layout):
            self._alarm.set(self._knobs.gather_ns)

    def beat(self, now: Nanoseconds) -> bool:
        """Send word, as is due now and then; whether this site should found a cluster."""
        layout, word = self._grove.layout, self._floor.word()
        if layout is None:
            self._effects.append(Multicast(word))
            return self._is_founder(now)
        chief = self.company.chief(now, layout)
        if chief == self._site:
            self._effects.append(Multicast(word))
            self._handover.tell(now)
            self.company.wish(self._site, word, layout)
            self.look(now)
        else:
            self._effects.append(Send(chief, word))
        return False

    def tell_stages(self, now: Nanoseconds) -> None:
        """This site has got further with a tree that hands over."""
        layout = self._grove.layout
        assert layout is not None, "only a site in a cluster has trees"
        chief = self.company.chief(now, layout)
        if chief == self._site:
            self._handover.tell_news(now)
        else:
            self._effects.append(Send(chief, self._floor.word()))

    def _is_founder(self, now: Nanoseconds) -> bool:
        """Whether nobody with a cluster was heard for long, and nobody without one that comes before us."""
        since_ns = now - self._knobs.found_ns
        has_rival = self._rival_ns is not None and self._rival_ns > since_ns
        return self._cluster_ns <= since_ns and not has_rival

    def look(self, now: Nanoseconds) -> None:
        """If this site coordinates and something has to change, see to it soon."""
        self._coordinator.look(now)

    def resume(self) -> None:
        """All timers stood still: none is set any more."""
        self._alarm.clear()
        if self._coordinator.is_busy or self._voter.pending is not None:
            self._alarm.set(self._knobs.repair_ns)

    def fire(self, now: Nanoseconds) -> None:
        """Go on with what has been begun, or begin."""
        self._alarm.clear()
        if self._voter.is_stuck(now, STUCK_AFTER * self._knobs.suspect_ns):
            self._floor.begin_anew(now)
        if self._voter.pending is not None:
            self._try_to_accept(now)
            self._alarm.set(self._knobs.repair_ns)
        self._coordinator.fire(now)

    @property
    def attempts(self) -> int:
        """How many this site has made."""
        return self._coordinator.attempts

    @property
    def pending(self) -> Decision | None:
        """A decision for which something is lacking here."""
        return self._voter.pending

    def have_fetched(self, now: Nanoseconds) -> None:
        """Something that was lacking has come."""
        self._try_to_accept(now)

    # From others

    def receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        if isinstance(pdu, Word | Prepare | Install) and pdu.rules != self._rules:
            self._keep_apart(now, sender, pdu)
            return
        life = pdu.life if isinstance(pdu, Word) else None
        if life is None or self.company.may_live(sender, life):
            self.company.hear(now, sender, life)
            self._hear(now, sender, pdu)

    def _hear(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        self._words[type(pdu)](self, now, sender, pdu)

    def _hear_word(self, now: Nanoseconds, sender: Site, pdu: Word) -> None:
        layout = self._grove.layout
        if layout is None:
            if pdu.origin is not None:
                self._cluster_ns = now
            elif sender < self._site:
                self._rival_ns = now
            return
        if pdu.origin is None:
            if layout.lives.get(sender) == pdu.life:
                self._effects.extend(said(Install(self._rules, layout.decision), sender))
            elif self.company.wish(sender, pdu, layout):
                self._take_stock(now, layout, _has_given_up(pdu.life, layout.lives.get(sender)))
        elif self._is_rival(now, sender, pdu.origin, layout):
            return
        elif pdu.version < layout.version:
            self._effects.extend(said(Install(self._rules, layout.decision), sender))
        elif pdu.version > layout.version:
            self._effects.append(Send(sender, self._floor.word()))
        elif layout.lives.get(sender) == pdu.life:
            if layout.retiring:
                self._handover.hear(sender, pdu)
                self._handover.tell_news(now)
            if self.company.wish(sender, pdu, layout):
                self.look(now)

    def _take_stock(self, now: Nanoseconds, layout: Layout, has_given_up: bool) -> None:
        """Somebody wants to come in, and may have lost its memory: see whether this cluster can go on.

        If those who have not are too few, no version can ever follow by a vote, whoever comes back. So this
        site gives up what it knows, as others will who find the same, and they found another cluster. If one
        has given up because those who are away did not come back, they are not waited for here either.
        """
        company = self.company
        if layout.is_quorum(company.heard_of(layout) if has_given_up else company.remembering(layout)):
            self.look(now)
        else:
            self._floor.begin_anew(now)

    def _keep_apart(self, now: Nanoseconds, sender: Site, pdu: Word | Prepare | Install) -> None:
        """Have nothing to do with a site that keeps other rules, but say so; and found nothing beside it."""
        if not isinstance(pdu, Word):
            return
        if pdu.origin is not None:
            self._cluster_ns = now
        if self._strangers.get(sender) != pdu.rules and len(self._strangers) < MOST_SITES:
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
        if origin > own:
            self._effects.append(Send(sender, self._floor.word()))
        elif self._is_said_again(now, origin):
            self._floor.begin_anew(now)
        return True

    def _is_said_again(self, now: Nanoseconds, origin: Origin) -> bool:
        """Whether what would make this site begin anew was said a while ago too: one word is not enough."""
        if self._doubted is None or self._doubted[0] != origin:
            self._doubted = (origin, now)
        return now - self._doubted[1] >= self._knobs.heartbeat_ns // 2

    def _hear_goodbye(self, now: Nanoseconds, sender: Site, pdu: Goodbye) -> None:
        layout = self._grove.layout
        if layout is not None and layout.lives.get(sender) == pdu.life:
            self.company.miss(sender)
            self.look(now)

    def _hear_progress(self, now: Nanoseconds, sender: Site, pdu: Progress) -> None:
        layout = self._grove.layout
        if layout is not None and sender == self.company.chief(now, layout):
            self._grove.take_progress(now, pdu.stages)

    # Attempts

    def _hear_prepare(self, now: Nanoseconds, sender: Site, pdu: Prepare) -> None:
        layout = self._grove.layout
        if layout is None:
            if not self._binds(now, pdu):
                return
        elif self._is_rival(now, sender, pdu.origin, layout):
            return
        if not self._takes_part(sender, pdu.version, pdu.round):
            return
        report = self._voter.report(pdu)
        if sender == self._site:
            self._hear_report(now, sender, report)
        else:
            self._effects.extend(said(report, sender))

    def _binds(self, now: Nanoseconds, pdu: Prepare) -> bool:
        """Whether a site without a cluster takes part in this attempt.

        Not while an older cluster calls it, or the same one to a later version. Otherwise it begins anew, if
        it is bound elsewhere: what it has promised, or accepted and may be in force with a seat for it, then
        concerns a life that is over.
        """
        self._cluster_ns = now
        if pdu.version > LATEST_VERSION:
            return False
        if self._bound is not None:
            origin, version, called_ns = self._bound
            is_worse = (origin, -version) < (pdu.origin, -pdu.version)
            if is_worse and now - called_ns < self._knobs.suspect_ns:
                return False
            is_later = origin == pdu.origin and version < pdu.version and self._voter.vote is None
            if (origin, version) != (pdu.origin, pdu.version) and not is_later:
                self._floor.begin_anew(now)
        self._bound = (pdu.origin, pdu.version, now)
        return True

    def _takes_part(self, sender: Site, version: int, round_: int) -> bool:
        """Whether this site takes part in an attempt; then it gives up its own, if that is an earlier one."""
        if not self._is_for_us(sender, version):
            return False
        if not self._voter.promises(sender, version, round_):
            self._coordinator.learn_round(self._voter.round)
            return False
        self._coordinator.give_way((round_, sender))
        return True

    def _is_for_us(self, sender: Site, version: int) -> bool:
        """Whether an attempt is about the version that comes next here; help whoever knows less."""
        layout, vote = self._grove.layout, self._voter.vote
        if layout is None:
            return vote is None or version <= vote.decision.version
        if version == layout.version + 1:
            return sender in layout.lives
        if version <= layout.version:
            self._effects.extend(said(Install(self._rules, layout.decision), sender))
        else:
            self._effects.append(Send(sender, self._floor.word()))
        return False

    def _hear_report(self, now: Nanoseconds, sender: Site, pdu: Report) -> None:
        self._coordinator.hear_report(now, sender, pdu)

    def _hear_accept(self, now: Nanoseconds, sender: Site, pdu: Accept) -> None:
        if self._grove.layout is None and not self._is_bound_by(pdu.decision):
            self._effects.append(Send(sender, Refuse(pdu.version, pdu.round)))
            return
        if not self._is_credible(pdu) or not self._takes_part(sender, pdu.version, pdu.round):
            return
        self._voter.consider(sender, pdu)
        self._try_to_accept(now)
        if self._voter.pending is not None:
            self._alarm.set(self._knobs.repair_ns)

    def _is_bound_by(self, decision: Decision) -> bool:
        """Whether a site without a cluster is being let in by this version; else it has been called away."""
        return self._bound is not None and self._bound[:2] == (decision.origin, decision.version)

    def _is_credible(self, pdu: Accept) -> bool:
        """Whether a decision can follow what is known here, and gives this site no seat that it did not want.

        A site without a cluster knows no more than by which version it is being let in. What was adopted may
        be in force, whatever it says of this site, and whoever of its sites is gone since.
        """
        layout, decision = self._grove.layout, pdu.decision
        if layout is None:
            return pdu.adopted or self._is_wanted(decision)
        if not can_follow(decision, layout, self._knobs):
            return False
        is_fair = self._is_wanted(decision) and is_heard_of(decision, layout, self.company.has_heard)
        return pdu.adopted or is_fair

    def _is_wanted(self, decision: Decision) -> bool:
        """Whether this site's seat is by its latest wish, or by an earlier one."""
        word = self._floor.word()
        wish = (word.serial, word.groups)
        own = [seat for seat in decision.seats if (seat.site, seat.life) == (self._site, word.life)]
        return all(seat.serial < word.serial or (seat.serial, seat.groups) == wish for seat in own)

    def _try_to_accept(self, now: Nanoseconds) -> None:
        answer = self._voter.accept(now)
        if answer is None:
            return
        sender, accepted = answer
        if sender == self._site:
            self._hear_accepted(now, sender, accepted)
        else:
            self._effects.append(Send(sender, accepted))

    def _hear_accepted(self, now: Nanoseconds, sender: Site, pdu: Accepted) -> None:
        decision = self._coordinator.hear_accepted(sender, pdu)
        if decision is not None:
            self._effects.extend(said(Install(self._rules, decision), None))
            self._put_in_force(now, decision)

    def _hear_refuse(self, _now: Nanoseconds, sender: Site, pdu: Refuse) -> None:
        self._coordinator.hear_refuse(sender, pdu)

    def _hear_install(self, now: Nanoseconds, sender: Site, pdu: Install) -> None:
        layout, decision = self._grove.layout, pdu.decision
        if layout is not None:
            if self._is_rival(now, sender, decision.origin, layout) or decision.version <= layout.version:
                return
            if not self._can_go_on(decision) and not self._is_said_again(now, decision.origin):
                return
        else:
            self._cluster_ns = now
        self._put_in_force(now, decision)

    def _put_in_force(self, now: Nanoseconds, decision: Decision) -> None:
        """Go on with a version that was decided, or begin anew where it was decided without us."""
        if self._can_go_on(decision):
            self._floor.install(now, decision)
        elif self._grove.layout is not None or self._is_in(decision):
            self._floor.begin_anew(now)

    def _can_go_on(self, decision: Decision) -> bool:
        """Whether this site has accepted a decision, comes to it from the version before, and is in it."""
        layout = self._grove.layout
        is_next = layout is None or decision.version == layout.version + 1
        return is_next and self._voter.has_accepted(decision) and self._is_in(decision)

    def _is_in(self, decision: Decision) -> bool:
        return any(seat.site == self._site and seat.life == self._grove.life for seat in decision.seats)

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


def _has_given_up(life: Life, seated: Life | None) -> bool:
    """Whether a site with a seat begins anew although it has not crashed."""
    return seated is not None and life[0] == seated[0] and life[1] > seated[1]
