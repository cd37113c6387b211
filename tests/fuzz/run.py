"""One run: a group works, a liar lies and falls silent, and the others must work again within two seconds.

What is demanded of the honest members: none raises; each delivers again what every other one sends; the
promises of the order hold for whatever was sent after the silence; nothing they hold has grown without end.
"""

import signal
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from antiphon.check.verdict import Violation
from antiphon.core import effects as fx
from antiphon.core.ids import MessageId, Site
from antiphon.core.inputs import JoinGroup
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.live.orders import ORDERS
from antiphon.protocols.dpg.order import NUMBER_TAKEN
from antiphon.protocols.metagroups.pdus import Copy, Entry, Token
from antiphon.sim.world import Host
from antiphon.trace.schema import Run
from tests.fuzz.arena import LIAR, RUN, Arena, Broken, Tally, Wrap, batch
from tests.fuzz.containers import Holdings
from tests.fuzz.judging import After
from tests.fuzz.plans import Plan

STEP_NS: Final = 10 * MILLISECOND_NS
BEGINNING_NS: Final = 5 * SECOND_NS
"""How long a group without a liar may take to come together."""
RECOVERY_NS: Final = 2 * SECOND_NS
"""How long a group may take to deliver again once its liar is silent, with the time to find that out."""
RETURN_NS: Final = 3 * SECOND_NS
"""How long a process that takes over the liar's name may take to join, and all to deliver its messages."""
CLOSING_NS: Final = SECOND_NS
"""How long the last messages may take to be delivered everywhere, if a group has recovered late."""
AGAIN_NS: Final = 300 * MILLISECOND_NS
"""After this time another last message is sent. Raising it costs simulated time."""
STUCK_S: Final = 60.0
"""Processor time after which a millisecond of a simulated group is taken to have no end."""
BEFORE_NS: Final = 100 * MILLISECOND_NS
"""How long members send in peace."""
OFFER_NS: Final = 25 * MILLISECOND_NS
"""How often each honest member sends."""
LARGEST_CONTAINER: Final = 6000
"""Entries that a container of a member may have, if it is none of those below."""
LARGER_CONTAINERS: Final = {"tombstones": 1 << 16}
"""Ends of paths to containers that have another bound, which their configuration tells."""
LARGEST_MEMBER_BYTES: Final = 64 << 20
GROUPS: Final = ("all", "some")
"""The groups of total-across: every member is in the first, every second one in the second."""


@dataclass(frozen=True)
class Outcome:
    """What came of a run: `failure` is one line, None if nothing failed; `story` tells more."""

    plan: Plan
    tally: Tally
    lies: int
    failure: str | None
    story: str = ""
    recovered_ms: float = 0.0
    """Simulated time from the silence until everyone delivered everyone's messages again."""
    largest: int = 0
    """Entries of the largest container met."""


class Failed(Exception):  # noqa: N818
    """A demand is not met."""


def run(plan: Plan, only: Collection[int] | None = None, wrap: Wrap | None = None) -> Outcome:
    """Run a plan, with all of its lies or only some."""
    performance = Performance(plan, only, wrap)
    before = signal.signal(signal.SIGVTALRM, _stuck)
    try:
        performance.play()
    except (Broken, Failed) as error:
        cause = error.__cause__
        story = "" if cause is None else "".join(traceback.format_exception(cause))
        return performance.outcome(str(error), story)
    finally:
        signal.signal(signal.SIGVTALRM, before)
    return performance.outcome(None)


def _stuck(_number: int, _frame: object) -> None:
    raise TimeoutError(f"{STUCK_S:.0f} s of processor time and no end")


class Performance:
    """The acts of a run."""

    def __init__(self, plan: Plan, only: Collection[int] | None, wrap: Wrap | None) -> None:
        self._plan = plan
        self._arena = arena = Arena(plan, only, wrap)
        self._sites = plan.sites
        self._several = ORDERS[plan.order].several
        self._selective = ORDERS[plan.order].selective
        self._known: dict[Site, set[Site]] = {site: set() for site in (*plan.sites, LIAR)}
        self._joined: set[tuple[Site, str]] = set()
        self._serial = 0
        self._offering = True
        self._offered = b""
        self._sent: dict[MessageId, tuple[Nanoseconds, bytes, frozenset[Site]]] = {}
        """When each honest message was admitted, its body, and its destinations."""
        self._reached: dict[MessageId, set[Site]] = {}
        self._delivered: dict[Site, set[tuple[MessageId, int]]] = {}
        """What each honest process has delivered, with the incarnations of the senders."""
        self._named: dict[Site, list[tuple[int, int]]] = {}
        """Numbers of other senders that the liar has named, from each first one on and before each second."""
        self._forged: set[MessageId] = set()
        """Honest messages that the liar named before their senders sent them.

        A primary site of total-across that lies can have others deliver or hold such a message, and no one of
        them can know better: that would take Byzantine agreement. What is promised of a message does not
        count for these; no member delivers one twice even so.
        """
        self._stable: set[MessageId] = set()
        """Honest messages that their own senders know to be held by all."""
        self._passed_over: dict[tuple[Site, MessageId], str] = {}
        """What members told that they do not deliver, and why."""
        self._disagreed = False
        """Whether an honest member has told that its order is not that of another one."""
        self._silent_ns = 0
        self._recovered_ns = 0
        self._recovery_ns = 0
        self._largest = 0
        arena.on_deliver = self._note_delivery
        arena.on_admitted = self._note_admission
        arena.on_presence = self._note_presence
        arena.on_group = self._note_group
        arena.on_stable = self._note_stability
        arena.on_doubt = self._note_doubt
        arena.on_lie = self._note_lie

    def outcome(self, failure: str | None, story: str = "") -> Outcome:
        arena = self._arena
        took_ms = self._recovery_ns / MILLISECOND_NS
        return Outcome(self._plan, arena.tally, arena.lies, failure, story, took_ms, self._largest)

    def observed(self) -> list[Pdu]:
        """PDUs that honest members sent, some of each kind."""
        return self._arena.forge.observed()

    # Acts

    def play(self) -> None:
        self._gather()
        self._keep_offering()
        self._pass_ns(BEFORE_NS)
        self._let_lie()
        self._look_at_containers("while the liar lies")
        self._arena.silence()
        self._silent_ns = self._arena.now
        self._demand_recovery()
        self._demand_closing()
        self._look_at_containers("at the end")
        self._judge()
        if self._plan.returns:
            self._demand_return()

    def _gather(self) -> None:
        arena, plan = self._arena, self._plan
        members = [*self._sites, LIAR] if plan.takes_part else self._sites
        for site in members:
            arena.begin(site)
        if not plan.takes_part:
            arena.liar.up = arena.liar.present = False
        if not self._until(lambda: not arena.watch.away.intersection(members), BEGINNING_NS):
            raise Failed(f"in peace, {sorted(arena.watch.away)} did not take part")
        if self._several:
            wanted = self._wanted(members)
            for site, group in sorted(wanted):
                arena.give(arena.host(site), JoinGroup(group))
            if not self._until(lambda: wanted <= self._joined, BEGINNING_NS):
                raise Failed(f"in peace, groups were not joined: {sorted(wanted - self._joined)}")
        honest = set(self._sites)
        if self._selective and not self._until(
            lambda: all(honest - {site} <= self._known[site] for site in honest), BEGINNING_NS
        ):
            raise Failed("in peace, members did not get to know one another")

    @staticmethod
    def _wanted(members: Collection[Site]) -> set[tuple[Site, str]]:
        everywhere = {(site, GROUPS[0]) for site in members}
        return everywhere | {(site, GROUPS[1]) for place, site in enumerate(members) if place % 2 == 0}

    def _let_lie(self) -> None:
        arena, plan = self._arena, self._plan
        arena.lying = True
        begin_ns, span_ns = arena.now, plan.span_ms * MILLISECOND_NS
        for turn in range(plan.restarts if plan.takes_part else 0):
            arena.at(begin_ns + span_ns * (turn + 1) // (plan.restarts + 1), lambda: self._begin_anew(LIAR))
        if plan.crashes:
            arena.at(begin_ns + span_ns // 2, lambda: self._begin_anew(self._sites[-1]))
        steps = plan.span_ms
        told = 0
        for step in range(steps):
            while told * steps < plan.pdus * (step + 1):
                told += 1
                if arena.liar.up or not plan.takes_part:
                    arena.lie()
            self._pass_ns(MILLISECOND_NS)

    def _begin_anew(self, site: Site) -> None:
        arena = self._arena
        self._known[site].clear()
        self._delivered.pop(site, None)
        groups = [group for group in GROUPS if (site, group) in self._joined]
        self._joined -= {(site, group) for group in groups}
        arena.begin_anew(site)
        for group in groups:
            arena.give(arena.host(site), JoinGroup(group))

    def _demand_return(self) -> None:
        """An honest process with the liar's name joins, and everyone delivers everyone's messages.

        A liar may spoil its own name by an incarnation that leaves no later one, until it is forgotten.
        """
        arena = self._arena
        if arena.is_spoiled(LIAR):
            return
        arena.reformed = True
        self._sites = (*self._sites, LIAR)
        self._joined.add((LIAR, GROUPS[0]))
        self._silent_ns = arena.now
        self._begin_anew(LIAR)
        self._offering = True
        self._keep_offering()
        if not self._until(self._has_recovered, RETURN_NS):
            raise Failed(f"{RETURN_NS // SECOND_NS} s after an honest return, {self._lacking()}")

    def _demand_recovery(self) -> None:
        if not self._until(self._has_recovered, RECOVERY_NS):
            raise Failed(f"{RECOVERY_NS // SECOND_NS} s after the silence, {self._lacking()}")
        self._recovered_ns = self._arena.now
        self._recovery_ns = self._recovered_ns - self._silent_ns

    def _has_recovered(self) -> bool:
        return not self._arena.watch.away.intersection(self._sites) and not self._missing_pairs()

    def _missing_pairs(self) -> set[tuple[Site, Site]]:
        """Of which sender each member has delivered nothing that was sent after the silence."""
        missing = {(sender, site) for sender in self._sites for site in self._sites}
        for message, reached in self._reached.items():
            if self._sent[message][0] >= self._silent_ns:
                counting = self._sites if message in self._forged else reached
                missing.difference_update((message.sender, site) for site in counting)
        return missing

    def _lacking(self) -> str:
        away = sorted(self._arena.watch.away.intersection(self._sites))
        missing = sorted(f"{site} of {sender}" for sender, site in self._missing_pairs())
        return f"away: {', '.join(away) or 'none'}; nothing delivered by: {', '.join(missing) or 'none'}"

    def _demand_closing(self) -> None:
        """One message of each member must be delivered by all and become stable, while all is quiet."""
        self._offering = False
        closing_ns = self._arena.now + MILLISECOND_NS
        self._pass_ns(MILLISECOND_NS)
        everyone = frozenset(self._sites)

        def is_closed() -> bool:
            done = {
                message.sender
                for message, (sent_ns, _, to) in self._sent.items()
                if sent_ns >= closing_ns
                and to >= everyone
                and (message in self._forged or self._reached[message] >= everyone)
                and message in self._stable
            }
            # A member that was absent in between does not learn of what it sent before: it sends again.
            lately = self._sent_since(max(closing_ns, self._arena.now - AGAIN_NS))
            for site in sorted(everyone - done - {message.sender for message in lately}):
                self._offer(site)
            return done == everyone

        left_ns = max(self._silent_ns + RECOVERY_NS - closing_ns, CLOSING_NS)
        if not self._until(is_closed, left_ns):
            raise Failed(f"after the recovery, {self._unclosed(closing_ns)}")
        # Of what is under way the order may be unknown for as long as a closing message may take.
        self._until(
            lambda: all(self._reached[sent] >= everyone for sent in self._sent_since(closing_ns)), CLOSING_NS
        )
        self._pass_ns(AGAIN_NS)

    def _unclosed(self, closing_ns: Nanoseconds) -> str:
        closing = self._sent_since(closing_ns)
        missing = {
            f"{sent.sender}:{sent.number}": sorted(set(self._sites) - self._reached[sent]) for sent in closing
        }
        if any(missing.values()):
            return f"closing messages did not reach: {missing}"
        if len(closing) < len(self._sites):
            return f"nothing was taken from: {sorted(set(self._sites) - {sent.sender for sent in closing})}"
        unstable = [tuple(sent) for sent in closing if sent not in self._stable]
        return f"closing messages are not stable: {unstable}"

    def _sent_since(self, since_ns: Nanoseconds) -> list[MessageId]:
        return [message for message, (sent_ns, _, _) in self._sent.items() if sent_ns >= since_ns]

    # Applications

    def _keep_offering(self) -> None:
        """Every member sends, now and again and again, by turns; a liar that takes part does so too."""
        if self._offering:
            for site in dict.fromkeys((*self._sites, LIAR)):
                self._offer(site)
            self._arena.at(self._arena.now + OFFER_NS, self._keep_offering)

    def _offer(self, site: Site) -> None:
        self._serial += 1
        self._offered = f"{site}.{self._serial}".encode()
        group: str | None = None
        if self._several:
            is_in_both = (site, GROUPS[1]) in self._joined
            turn = self._serial // (len(self._sites) + 1)
            group = GROUPS[1] if is_in_both and self._offering and turn % 3 == 0 else GROUPS[0]
        to = frozenset({site, *self._known[site]}) if self._selective else None
        self._arena.admit(site, batch(self._offered), to, group)

    def _note_admission(self, now: Nanoseconds, host: Host, effect: fx.Admitted) -> None:
        if host.site not in self._sites:
            return
        to = frozenset(self._sites)
        if effect.destinations is not None:
            to &= effect.destinations
        if effect.group is not None:
            to &= {site for site, group in self._joined if group == effect.group}
        message = MessageId(host.site, effect.number)
        if any(first <= message.number < end for first, end in self._named.get(host.site, ())):
            self._forged.add(message)
        self._sent[message] = (now, self._offered, to)
        self._reached[message] = set()

    def _note_delivery(self, now: Nanoseconds, host: Host, effect: fx.Deliver) -> None:
        if host.site not in self._sites:
            return
        for place, body in enumerate(effect.bodies):
            message = MessageId(effect.sender, effect.number + place)
            self._demand_once(host.site, message, effect.incarnation)
            known = self._sent.get(message)
            if known is None:
                continue
            if known[1] == body:
                self._reached[message].add(host.site)
            elif self._is_promised(message, known[0]):
                raise Failed(f"{host.site} delivered {message} of after the silence with {body!r}")

    def _demand_once(self, site: Site, message: MessageId, incarnation: int) -> None:
        """No process delivers a message twice, whatever the liar says meanwhile."""
        delivered = self._delivered.setdefault(site, set())
        if (message, incarnation) in delivered:
            raise Failed(f"{site} delivered {message} of incarnation {incarnation} twice")
        delivered.add((message, incarnation))

    def _is_promised(self, message: MessageId, sent_ns: Nanoseconds) -> bool:
        is_late = bool(self._silent_ns) and sent_ns >= self._silent_ns
        return is_late and message.sender != LIAR and message not in self._forged

    def _note_lie(self, pdu: Pdu) -> None:
        if isinstance(pdu, Entry | Token | Copy):
            count = pdu.count if isinstance(pdu, Token) else len(pdu.bodies)
            self._named.setdefault(pdu.sender, []).append((pdu.number, pdu.number + count))

    def _note_stability(self, _now: Nanoseconds, host: Host, effect: fx.Stable) -> None:
        if effect.sender == host.site:
            numbers = range(effect.number, effect.number + effect.count)
            self._stable.update(MessageId(host.site, number) for number in numbers)

    def _note_doubt(self, _now: Nanoseconds, host: Host, effect: fx.Doubt) -> None:
        if isinstance(effect, fx.Disagreed | fx.Forked):
            self._disagreed |= host.site in self._sites and effect.other in self._sites
        elif isinstance(effect, fx.Unavailable) and effect.sender is not None and effect.number is not None:
            self._passed_over[host.site, MessageId(effect.sender, effect.number)] = effect.reason

    def _note_presence(self, _now: Nanoseconds, host: Host, effect: fx.Appeared | fx.Vanished) -> None:
        if isinstance(effect, fx.Appeared):
            self._known[host.site].add(effect.site)
        else:
            self._known[host.site].discard(effect.site)

    def _note_group(self, _now: Nanoseconds, host: Host, effect: fx.Joined | fx.Left) -> None:
        if isinstance(effect, fx.Joined):
            self._joined.add((host.site, effect.group))
        else:
            self._joined.discard((host.site, effect.group))

    # Time

    def _pass_ns(self, span_ns: Nanoseconds) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, STUCK_S)
        try:
            self._arena.run(self._arena.now + span_ns)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def _until(self, condition: Callable[[], bool], limit_ns: Nanoseconds) -> bool:
        deadline_ns = self._arena.now + limit_ns
        while not condition():
            if self._arena.now >= deadline_ns:
                return False
            self._pass_ns(STEP_NS)
        return True

    # Verdicts

    def _look_at_containers(self, when: str) -> None:
        for site in self._sites:
            held = Holdings(self._arena.protocols[site])
            self._largest = max(self._largest, *held.largest.values())
            for path, size in held.above(LARGEST_CONTAINER, LARGER_CONTAINERS).items():
                raise Failed(f"{when}, {site} holds {size} entries in {path}")
            if held.bytes > LARGEST_MEMBER_BYTES:
                raise Failed(f"{when}, {site} holds {held.bytes} bytes")

    def _judge(self) -> None:
        plan = self._plan
        groups = None
        if self._several:
            groups = {
                name: tuple(sorted(site for site, group in self._joined if group == name and site != LIAR))
                for name in GROUPS
            }
        promises = plan.made.promises()
        judged = Run(RUN, plan.order, promises, groups)
        events = list(self._arena.trace.events())
        after = After(self._sites, self._silent_ns, self._recovered_ns, self._forged)
        for violation in after.broken(events, judged):
            if not self._is_granted(violation):
                raise Failed(f"{violation.property} is broken: {violation.explanation}")
        recovered = After(self._sites, self._recovered_ns, self._recovered_ns, self._forged)
        for violation in recovered.broken(events, judged):
            if violation.property == "total":
                raise Failed(f"total is broken after the recovery: {violation.explanation}")

    def _is_granted(self, violation: Violation) -> bool:
        """Whether a message is missing, or stands elsewhere, for what the liar has said, and that was told.

        The quasi-agreed order takes others' word for what precedes what. What the liar has said of that may
        stand in graphs until the group has recovered: a member that has gone on by it passes a message over,
        or has it in another place than others, and says so. And a number that was delivered for a forged
        message is not delivered again.
        """
        if self._plan.order != "total":
            return False
        if violation.property == "total":
            return self._disagreed
        if violation.property != "atomicity":
            return False
        assert violation.site is not None
        assert violation.sender is not None
        assert violation.number is not None
        message = MessageId(violation.sender, violation.number)
        reason = self._passed_over.get((violation.site, message))
        sent_ns = self._sent[message][0] if message in self._sent else self._recovered_ns
        return reason == NUMBER_TAKEN or (reason is not None and sent_ns < self._recovered_ns)
