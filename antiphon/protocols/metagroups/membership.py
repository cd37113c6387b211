"""The membership service: all sites of a cluster agree on one view after another.

Each site has an `acceptor` and, while it coordinates, a `proposer`; both treat the parts of their own site
like those of others. This module decides first whether a PDU concerns this site, by its rules, its cluster
and its version. A site that knows that a view was decided installs it. A site that learns of a view that it
has not accepted, or that does not list it, was excluded, and starts a new session.
"""

from collections.abc import Callable
from random import Random
from typing import Any, ClassVar, Final
from typing import Protocol as Interface

from antiphon.core.effects import Disagreed, Multicast, Send
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups.acceptor import FIRST_ROUND, Acceptor
from antiphon.protocols.metagroups.context import Context
from antiphon.protocols.metagroups.credible import can_follow, is_mostly_known
from antiphon.protocols.metagroups.granting import Granter
from antiphon.protocols.metagroups.handover import Handover
from antiphon.protocols.metagroups.parts import decision_name, in_parts
from antiphon.protocols.metagroups.pdus import (
    MOST_SITES,
    Accept,
    AcceptChange,
    Accepted,
    AskMoves,
    Decided,
    Decision,
    Goodbye,
    Heartbeat,
    Install,
    Leave,
    Leaving,
    Move,
    Moved,
    Moves,
    Origin,
    PlaceMove,
    Prepare,
    Progress,
    Refuse,
    Report,
    Session,
    SiteRecord,
)
from antiphon.protocols.metagroups.peers import PeerTable
from antiphon.protocols.metagroups.proposer import STUCK_AFTER, MembershipTimer, Proposer
from antiphon.protocols.metagroups.site_trees import SiteTrees
from antiphon.protocols.metagroups.view import View, decision_after

LATEST_VERSION: Final = 1 << 40
"""The latest version by which a site without a cluster is let in. Versions never run out beyond it: one every
millisecond takes 35 years."""


class MembershipHost(Interface):
    """The site whose membership this is."""

    def heartbeat(self) -> Heartbeat: ...
    def install(self, now: Nanoseconds, decision: Decision) -> None: ...
    def start_new_session(self, now: Nanoseconds) -> None: ...


class MembershipService:
    """One site's part in agreeing on views."""

    def __init__(
        self, context: Context, host: MembershipHost, trees: SiteTrees, peers: PeerTable, random: Random
    ) -> None:
        self._site: Final = context.site
        self._configuration: Final = context.configuration
        self._effects: Final = context.effects
        self._rules: Final = context.configuration.rules
        self._host: Final = host
        self._trees: Final = trees
        self._peers: Final = peers
        self._handover: Final = Handover(context, trees)
        self._timer: Final = MembershipTimer(context.effects)
        self._acceptor: Final = Acceptor(context, trees)
        self._proposer: Final = Proposer(context, self, trees, peers, self._handover, self._timer, random)
        self._granter: Final = Granter(context, trees, peers)
        self._asked_ns: Nanoseconds | None = None
        """When this site last asked for moves that it does not know."""
        self._rival_ns: Nanoseconds | None = None
        """When a site without a cluster and with a smaller name was last heard."""
        self._cluster_ns: Nanoseconds = 0
        """While this site has no cluster: when a site with one was last heard, or this session began."""
        self._invitation: tuple[Origin, int, Nanoseconds] | None = None
        """While this site has no cluster: the cluster and the version that will let it in, and when that was
        last heard."""
        self._refused: dict[Site, str] = {}
        """Sites with other rules, and the rules of each, as reported to the application."""
        self._hearsay: tuple[Origin, Nanoseconds] | None = None
        """A cluster that this site has to give way to, or that has gone on without it, by hearsay, and since
        when that is said."""

    # From the site itself

    def on_view(self, now: Nanoseconds, view: View) -> None:
        """A view was installed."""
        self._acceptor.begin(view.version + 1)
        self._proposer.reset()
        self._handover.reset()
        self._granter.reset()
        self._asked_ns = None
        self._hearsay = None
        self._peers.on_view(now, view)
        self.check(now)

    def reset(self, now: Nanoseconds) -> None:
        """This site starts a new session."""
        self._acceptor.begin(0)
        self._proposer.reset()
        self._handover.reset()
        self._granter.reset()
        self._asked_ns = None
        self._rival_ns = None
        self._refused.clear()
        self._cluster_ns = now
        self._invitation = None
        self._hearsay = None
        self._peers.reset(now)

    def request_change(self, now: Nanoseconds) -> None:
        """This site wants to be in other groups."""
        view = self._trees.view
        if view is None:
            return
        heartbeat = self._host.heartbeat()
        coordinator = self._peers.coordinator(now, view)
        if coordinator != self._site:
            self._effects.append(Send(coordinator, heartbeat))
        elif self._is_change(now, self._site, heartbeat, view):
            self._timer.set(self._configuration.gather_ns)

    def send_heartbeat(self, now: Nanoseconds) -> bool:
        """Send a heartbeat; whether this site should found a cluster."""
        view, heartbeat = self._trees.view, self._host.heartbeat()
        if view is None:
            self._effects.append(Multicast(heartbeat))
            return self._is_founder(now)
        coordinator = self._peers.coordinator(now, view)
        if coordinator == self._site:
            self._effects.append(Multicast(heartbeat))
            self._handover.repeat(now)
            self._is_change(now, self._site, heartbeat, view)
            for pdu in self._granter.repeat(view):
                self._dispatch(now, self._site, pdu)
            self._on_settled(now, self._site, heartbeat.settled, view)
            self.check(now)
        else:
            self._effects.append(Send(coordinator, heartbeat))
        return False

    def send_stages(self, now: Nanoseconds) -> None:
        """This site has advanced on a retiring tree."""
        view = self._trees.view
        assert view is not None, "only a site in a cluster has trees"
        coordinator = self._peers.coordinator(now, view)
        if coordinator == self._site:
            self._handover.send_news(now)
        else:
            self._effects.append(Send(coordinator, self._host.heartbeat()))

    def _is_founder(self, now: Nanoseconds) -> bool:
        """Whether neither a site with a cluster nor one with a smaller name was heard for `found_ns`."""
        since_ns = now - self._configuration.found_ns
        has_rival = self._rival_ns is not None and self._rival_ns > since_ns
        return self._cluster_ns <= since_ns and not has_rival

    def check(self, now: Nanoseconds) -> None:
        """If this site coordinates and the view has to change, do so soon."""
        self._proposer.check(now)

    def goodbye(self, *, for_good: bool) -> Goodbye:
        """What this site says when it goes absent."""
        view = self._trees.view
        version = 0 if view is None else view.version
        return Goodbye(self._trees.session, for_good, version, self._acceptor.vote is not None)

    def resume(self) -> None:
        """After an absence, in which no timer ran."""
        self._timer.clear()
        if self._proposer.is_busy or self._acceptor.pending is not None:
            self._timer.set(self._configuration.repair_ns)

    def on_timer(self, now: Nanoseconds) -> None:
        """Continue what has been begun, or begin an attempt."""
        self._timer.clear()
        if self._acceptor.is_stuck(now, STUCK_AFTER * self._configuration.suspect_ns):
            self._host.start_new_session(now)
        if self._acceptor.pending is not None:
            self._try_to_accept(now)
            self._timer.set(self._configuration.repair_ns)
        self._proposer.on_timer(now)

    @property
    def attempts(self) -> int:
        """Attempts that this site has made."""
        return self._proposer.attempts

    @property
    def pending(self) -> Decision | None:
        """A decision for which something is lacking here."""
        return self._acceptor.pending

    def on_fetched(self, now: Nanoseconds) -> None:
        """Everything that a decision needs is here now."""
        self._try_to_accept(now)

    # From its own proposer

    def vote(self, now: Nanoseconds, pdu: Prepare | Accept) -> None:
        self._dispatch(now, self._site, pdu)

    def give_up(self, now: Nanoseconds) -> None:
        self._host.start_new_session(now)

    # From other sites

    def receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        if isinstance(pdu, Heartbeat | Prepare | Install) and pdu.rules != self._rules:
            self._on_other_rules(now, sender, pdu)
            return
        session = pdu.session if isinstance(pdu, Heartbeat) else None
        if session is None or self._peers.can_be_in(sender, session):
            self._peers.on_message(now, sender, session)
            self._dispatch(now, sender, pdu)

    def _dispatch(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        self._handlers[type(pdu)](self, now, sender, pdu)

    def _on_heartbeat(self, now: Nanoseconds, sender: Site, pdu: Heartbeat) -> None:
        view = self._trees.view
        if view is None:
            if pdu.origin is not None:
                self._cluster_ns = now
            elif sender < self._site:
                self._rival_ns = now
            return
        if pdu.origin is None:
            self._on_newcomer(now, sender, pdu, view)
        elif self._is_rival(now, sender, pdu.origin, view):
            return
        elif pdu.version < view.version:
            self._effects.extend(in_parts(Install(self._rules, view.decision), sender))
        elif pdu.version > view.version:
            self._effects.append(Send(sender, self._host.heartbeat()))
        elif view.sessions.get(sender) == pdu.session:
            if view.retiring:
                self._handover.on_heartbeat(sender, pdu)
                self._handover.send_news(now)
            if sender == view.first:
                self._on_announced(now, pdu.moves, view)
            self._on_settled(now, sender, pdu.settled, view)
            if self._is_change(now, sender, pdu, view):
                self.check(now)

    # Moves

    def _is_change(self, now: Nanoseconds, sender: Site, pdu: Heartbeat, view: View) -> bool:
        """Note what a site asks for; whether the view has to change for it. A move needs no change."""
        if self._site == view.first:
            is_busy = self._acceptor.is_bound or self._proposer.is_busy or self._trees.stopped
            is_free = not is_busy and not self._peers.requests and not self._granter.overdue(now)
            begun = self._granter.on_request(now, sender, pdu, view, is_free=is_free)
            if begun is not None:
                self._tell(now, *begun)
                return False
            if self._granter.is_granted(sender, pdu) and not self._granter.overdue(now):
                return False
        return self._peers.on_request(sender, pdu, view)

    def _tell(self, now: Nanoseconds, site: Site, pdu: Pdu) -> None:
        if site == self._site:
            self._dispatch(now, site, pdu)
        else:
            self._effects.append(Send(site, pdu))

    def _on_place_move(self, now: Nanoseconds, sender: Site, pdu: PlaceMove) -> None:
        """Give a move its place, unless the next view is being agreed on; or say again that it is done."""
        view, move = self._trees.view, pdu.move
        if view is None or sender != view.first or move.version != view.version:
            return
        if self._trees.has_moved(move):
            self.confirm_move(now, move)
        elif not self._acceptor.is_bound:
            self._trees.place_move(now, move)

    def _on_leave(self, now: Nanoseconds, sender: Site, pdu: Leave) -> None:
        """This site leaves a group, unless the next view is being agreed on: then that will say so."""
        view, move = self._trees.view, pdu.move
        if view is None or sender != view.first or move.version != view.version:
            return
        is_wanted = move.group not in self._host.heartbeat().groups
        if is_wanted and not self._acceptor.is_bound and self._trees.leave(move):
            self._tell(now, sender, Leaving(move))

    def _on_leaving(self, now: Nanoseconds, sender: Site, pdu: Leaving) -> None:
        view = self._trees.view
        if view is not None:
            self._granter.on_leaving(now, sender, pdu, view)

    def _on_settled(self, now: Nanoseconds, sender: Site, settled: int, view: View) -> None:
        """A site names sites that leave by these moves no more."""
        for site, pdu in self._granter.on_settled(now, sender, settled, view):
            self._tell(now, site, pdu)

    def confirm_move(self, now: Nanoseconds, move: Move) -> None:
        """This site has moved."""
        view = self._trees.view
        if view is not None and move.version == view.version:
            self._tell(now, view.first, Moved(move))

    def _on_moved(self, _now: Nanoseconds, sender: Site, pdu: Moved) -> None:
        view = self._trees.view
        if view is not None:
            self._granter.on_moved(sender, pdu, view)

    def _on_announced(self, now: Nanoseconds, moves: int, view: View) -> None:
        """The first site of the view tells how many moves are done; a site that sends has to know them."""
        known = self._trees.moves
        known.announced = max(known.announced, moves)
        if known.is_behind and self._trees.is_sending():
            self.ask_for_moves(now, view)

    def ask_for_moves(self, now: Nanoseconds, view: View) -> None:
        """Ask the first site of the view for the moves that this site does not know."""
        if self._asked_ns is None or now - self._asked_ns >= self._configuration.repair_ns:
            self._asked_ns = now
            ask = AskMoves(view.decision.origin, view.version, len(self._trees.moves))
            self._effects.append(Send(view.first, ask))

    def _on_ask_moves(self, _now: Nanoseconds, sender: Site, pdu: AskMoves) -> None:
        view = self._trees.view
        if view is not None and (view.decision.origin, view.version) == (pdu.origin, pdu.version):
            self._granter.on_ask(sender, pdu)

    def _on_moves(self, _now: Nanoseconds, sender: Site, pdu: Moves) -> None:
        view = self._trees.view
        if view is not None and sender == view.first:
            self._trees.moves.learn((move for move in pdu.moves if self._is_credible_move(move, view)), view)

    def _is_credible_move(self, move: Move, view: View) -> bool:
        """Whether a move is of this view, and if it is this site's own, whether it takes part in it."""
        is_own = move.site == self._site
        return move.version == view.version and (not is_own or self._trees.has_noted(move))

    def _on_newcomer(self, now: Nanoseconds, sender: Site, pdu: Heartbeat, view: View) -> None:
        """A site without a cluster wants to come in; tell it so if it is in already."""
        if view.sessions.get(sender) == pdu.session:
            self._effects.extend(in_parts(Install(self._rules, view.decision), sender))
        elif self._peers.on_request(sender, pdu, view):
            self._check_quorum(now, view, has_given_up=_has_given_up(pdu.session, view.sessions.get(sender)))

    def _check_quorum(self, now: Nanoseconds, view: View, *, has_given_up: bool) -> None:
        """A site has left, or a newcomer may have lost its memory: find out whether this cluster can go on.

        If the sites that remember are no quorum, no view can ever follow. Then this site forgets its view, as
        others will that find the same, and they found another cluster. If the newcomer has given up because
        suspected sites did not return, they are not waited for here either.
        """
        peers = self._peers
        sites = peers.unsuspected(now, view) if has_given_up else peers.with_memory(view)
        if view.is_quorum(sites, peers.left(view)):
            self.check(now)
        else:
            self._host.start_new_session(now)

    def _on_other_rules(self, now: Nanoseconds, sender: Site, pdu: Heartbeat | Prepare | Install) -> None:
        """Ignore a site with other rules, but report it once; and found no cluster beside its own."""
        if not isinstance(pdu, Heartbeat):
            return
        if pdu.origin is not None:
            self._cluster_ns = now
        if self._refused.get(sender) != pdu.rules and len(self._refused) < MOST_SITES:
            self._refused[sender] = pdu.rules
            own, others = self._rules.split(), pdu.rules.split()
            here = " ".join(option for option in own if option not in others)
            there = " ".join(option for option in others if option not in own)
            self._effects.append(Disagreed(sender, f"It keeps other rules: {there}, and here {here}."))

    def _is_rival(self, now: Nanoseconds, sender: Site, origin: Origin, view: View) -> bool:
        """Whether this comes from another cluster; of two, the one that was founded later gives way."""
        own = view.decision.origin
        if origin == own:
            return False
        if origin > own:
            self._effects.append(Send(sender, self._host.heartbeat()))
        elif self._is_said_again(now, origin):
            self._host.start_new_session(now)
        return True

    def _is_said_again(self, now: Nanoseconds, origin: Origin) -> bool:
        """Whether the same was said a while ago too: one PDU is not enough to end this site's session."""
        if self._hearsay is None or self._hearsay[0] != origin:
            self._hearsay = (origin, now)
        return now - self._hearsay[1] >= self._configuration.heartbeat_ns // 2

    def _on_goodbye(self, now: Nanoseconds, sender: Site, pdu: Goodbye) -> None:
        view = self._trees.view
        if view is None or view.sessions.get(sender) != pdu.session:
            return
        if pdu.for_good:
            has_voted = pdu.has_voted or pdu.version != view.version
            self._peers.note_left(sender, pdu.session, has_voted=has_voted)
            self._check_quorum(now, view, has_given_up=False)
        else:
            self._peers.suspect(sender)
            self.check(now)

    def _on_progress(self, now: Nanoseconds, sender: Site, pdu: Progress) -> None:
        view = self._trees.view
        if view is not None and sender == self._peers.coordinator(now, view):
            self._trees.on_progress(now, pdu.stages)

    # Attempts

    def _on_prepare(self, now: Nanoseconds, sender: Site, pdu: Prepare) -> None:
        view = self._trees.view
        if view is None:
            if not self._accepts_invitation(now, pdu):
                return
        elif self._is_rival(now, sender, pdu.origin, view):
            return
        if not self._takes_part(sender, pdu.version, pdu.round):
            return
        report = self._acceptor.report(pdu, self._moved_record())
        if sender == self._site:
            self._on_report(now, sender, report)
        else:
            self._effects.extend(in_parts(report, sender))

    def _moved_record(self) -> SiteRecord | None:
        """The groups that this site wants, if it has joined or left any by a move."""
        if not self._trees.has_changed():
            return None
        own = self._host.heartbeat()
        return SiteRecord(self._site, own.session, own.serial, own.groups)

    def _accepts_invitation(self, now: Nanoseconds, pdu: Prepare) -> bool:
        """Whether a site without a cluster takes part in this attempt.

        Not while an older cluster invites it, or the same one to a later version. If it is invited elsewhere,
        it starts a new session: what it has promised, and any view that may list it, then concern a session
        that is over.
        """
        self._cluster_ns = now
        if pdu.version > LATEST_VERSION:
            return False
        if self._invitation is not None:
            origin, version, invited_ns = self._invitation
            is_worse = (origin, -version) < (pdu.origin, -pdu.version)
            if is_worse and now - invited_ns < self._configuration.suspect_ns:
                return False
            is_later = origin == pdu.origin and version < pdu.version and self._acceptor.vote is None
            if (origin, version) != (pdu.origin, pdu.version) and not is_later:
                self._host.start_new_session(now)
        self._invitation = (pdu.origin, pdu.version, now)
        return True

    def _takes_part(self, sender: Site, version: int, round_: int) -> bool:
        """Whether this site takes part in an attempt; then an earlier one of its own is over."""
        if not self._is_for_us(sender, version):
            return False
        if not self._acceptor.promise(sender, version, round_):
            self._proposer.learn_round(self._acceptor.round)
            return False
        self._proposer.give_way((round_, sender))
        return True

    def _is_for_us(self, sender: Site, version: int) -> bool:
        """Whether an attempt is about the next version; a sender that is behind gets the current one."""
        view, vote = self._trees.view, self._acceptor.vote
        if view is None:
            return vote is None or version <= vote.decision.version
        if version == view.version + 1:
            return sender in view.sessions
        if version <= view.version:
            self._effects.extend(in_parts(Install(self._rules, view.decision), sender))
        else:
            self._effects.append(Send(sender, self._host.heartbeat()))
        return False

    def _on_report(self, now: Nanoseconds, sender: Site, pdu: Report) -> None:
        self._proposer.on_report(now, sender, pdu)

    def _on_accept(self, now: Nanoseconds, sender: Site, pdu: Accept) -> None:
        if self._trees.view is None and not self._is_invited_by(pdu.decision):
            self._effects.append(Send(sender, Refuse(pdu.version, pdu.round)))
            return
        view = self._trees.view
        if pdu.round == FIRST_ROUND and (view is None or sender != min(view.sessions)):
            return
        if not self._is_credible(pdu) or not self._takes_part(sender, pdu.version, pdu.round):
            return
        self._acceptor.consider(sender, pdu)
        self._try_to_accept(now)
        if self._acceptor.pending is not None:
            self._timer.set(self._configuration.repair_ns)

    def _on_accept_change(self, now: Nanoseconds, sender: Site, pdu: AcceptChange) -> None:
        """The change counts only if it makes the same decision here as there; else the whole will come."""
        view = self._trees.view
        if view is None or pdu.version != view.version + 1:
            self._is_for_us(sender, pdu.version)
            return
        decision = decision_after(view.decision, pdu.change, self._configuration)
        if decision_name(decision) == pdu.name:
            self._on_accept(now, sender, Accept(pdu.version, pdu.round, False, decision))

    def _is_invited_by(self, decision: Decision) -> bool:
        """Whether this version is to let in this site, which has no cluster."""
        return self._invitation is not None and self._invitation[:2] == (decision.origin, decision.version)

    def _is_credible(self, pdu: Accept) -> bool:
        """Whether a decision can follow the current view, with a record of this site that it asked for.

        A site without a cluster knows only which version is to let it in. An adopted decision may have been
        installed, whatever its record of this site, and whichever of its sites have gone since.
        """
        view, decision = self._trees.view, pdu.decision
        if view is None:
            return pdu.adopted or self._is_wanted(decision)
        if not can_follow(decision, view, self._configuration, self._peers.left(view)):
            return False
        is_fair = self._is_wanted(decision) and is_mostly_known(decision, view, self._peers.has_announced)
        return pdu.adopted or is_fair

    def _is_wanted(self, decision: Decision) -> bool:
        """Whether the record of this site is one that it asks for, or has asked for before."""
        heartbeat = self._host.heartbeat()
        wanted = (heartbeat.serial, heartbeat.groups)
        own = [
            record
            for record in decision.records
            if (record.site, record.session) == (self._site, heartbeat.session)
        ]
        return all(
            record.serial < heartbeat.serial or (record.serial, record.groups) == wanted for record in own
        )

    def _try_to_accept(self, now: Nanoseconds) -> None:
        answer = self._acceptor.accept(now)
        if answer is None:
            return
        sender, accepted = answer
        if sender == self._site:
            self._on_accepted(now, sender, accepted)
        else:
            self._effects.append(Send(sender, accepted))

    def _on_accepted(self, now: Nanoseconds, sender: Site, pdu: Accepted) -> None:
        decision = self._proposer.on_accepted(sender, pdu)
        if decision is not None:
            others = tuple(record.site for record in decision.records if record.site != self._site)
            if others:
                name = decision_name(decision)
                self._effects.append(Multicast(Decided(decision.origin, decision.version, name), others))
            self._install(now, decision)

    def _on_refuse(self, _now: Nanoseconds, sender: Site, pdu: Refuse) -> None:
        self._proposer.on_refuse(sender, pdu)

    def _on_install(self, now: Nanoseconds, sender: Site, pdu: Install) -> None:
        view, decision = self._trees.view, pdu.decision
        if view is not None:
            if self._is_rival(now, sender, decision.origin, view) or decision.version <= view.version:
                return
            if not self._can_go_on(decision) and not self._is_said_again(now, decision.origin):
                return
        else:
            self._cluster_ns = now
        self._install(now, decision)

    def _on_decided(self, now: Nanoseconds, sender: Site, pdu: Decided) -> None:
        """Install the decision if this site has accepted it; otherwise ask the sender for it."""
        view, vote = self._trees.view, self._acceptor.vote
        if view is not None and (
            self._is_rival(now, sender, pdu.origin, view) or pdu.version <= view.version
        ):
            return
        if vote is not None and decision_name(vote.decision) == pdu.name and self._can_go_on(vote.decision):
            self._install(now, vote.decision)
        else:
            self._effects.append(Send(sender, self._host.heartbeat()))

    def _install(self, now: Nanoseconds, decision: Decision) -> None:
        """Install what was decided, or start a new session if it was decided without this site."""
        if self._can_go_on(decision):
            self._host.install(now, decision)
        elif self._trees.view is not None or self._is_in(decision):
            self._host.start_new_session(now)

    def _can_go_on(self, decision: Decision) -> bool:
        """Whether this site has accepted a decision, is in the version before, and is listed."""
        view = self._trees.view
        is_next = view is None or decision.version == view.version + 1
        return is_next and self._acceptor.has_accepted(decision) and self._is_in(decision)

    def _is_in(self, decision: Decision) -> bool:
        session = self._trees.session
        return any(record.site == self._site and record.session == session for record in decision.records)

    _handlers: ClassVar[dict[type[Pdu], Callable[["MembershipService", Nanoseconds, Site, Any], None]]] = {
        Heartbeat: _on_heartbeat,
        Progress: _on_progress,
        Goodbye: _on_goodbye,
        Prepare: _on_prepare,
        Report: _on_report,
        Accept: _on_accept,
        AcceptChange: _on_accept_change,
        Accepted: _on_accepted,
        Refuse: _on_refuse,
        Install: _on_install,
        Decided: _on_decided,
        PlaceMove: _on_place_move,
        Leave: _on_leave,
        Leaving: _on_leaving,
        Moved: _on_moved,
        Moves: _on_moves,
        AskMoves: _on_ask_moves,
    }


def _has_given_up(session: Session, listed: Session | None) -> bool:
    """Whether a listed site has started a new session without a crash."""
    return listed is not None and session[0] == listed[0] and session[1] > listed[1]
