"""A sequencer that is no member: it numbers the tags of all members that ask, of several groups alike."""

from dataclasses import replace
from random import Random

from antiphon.core.effects import Effect
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import Input, Received, Start, TimerFired
from antiphon.core.protocol import PeerReport
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.pdus import ORIGIN, Message, Tag
from antiphon.protocols.dpg.services.tag_sequencer.pdus import PDUS, SequencerOptions
from antiphon.protocols.dpg.services.tag_sequencer.service import SequencerService


class TagSequencerSite:
    """Implements `LiveProtocol`, and `MemberView`: it has no messages, and every tag is foreign to it.

    Members of its groups name it as `SequencerOptions.outside`, and wait for it while it is away: members of
    one group cannot know which numbers those of another have. A restarted one asks all of them for the
    numbers that they know, and goes on behind the greatest.
    """

    def __init__(self, site: Site, random: Random, options: SequencerOptions | None = None) -> None:
        self.site = site
        self.random = random
        self._effects: list[Effect] = []
        self._started = False
        # No client can be the sequencer, whatever it claims.
        self._service = SequencerService(replace(options or SequencerOptions(), outside=site))
        self._service.attach(self)

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        match event:
            case Start(incarnation=incarnation):
                if self._started:
                    raise UsageError("This sequencer has started already.")
                self._started = True
                self._service.start(now, incarnation)
                self._service.take_part(now)
                self._service.volunteer(now)
            case Received(sender=sender, pdu=pdu, after_loss=after_loss) if isinstance(pdu, PDUS):
                self._service.on_other_pdu(now, sender, pdu, after_loss=after_loss)
            case TimerFired(name=name):
                self._service.on_timer(now, name)
            case _:
                pass  # 'message' PDUs and reports concern only members
        effects, self._effects = self._effects, []
        return effects

    def peers(self, now: Nanoseconds) -> dict[Site, PeerReport]:  # noqa: ARG002
        """Nothing: it does not know its groups."""
        return {}

    def incarnation_of(self, site: Site) -> int:  # noqa: ARG002
        """Nothing: it does not know its groups."""
        return 0

    def figures(self) -> dict[str, int]:
        """Figures for users to watch."""
        return self._service.figures()

    # The member, as its service sees it

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def is_ours(self, tag: Tag) -> bool:  # noqa: ARG002 - it must not be able to tell
        return False

    def unlocated(self) -> tuple[Message, ...]:
        return ()

    def is_at_origin(self) -> bool:
        return False

    def root(self) -> Tag:
        return ORIGIN

    def is_ahead(self, tag: Tag) -> bool:  # noqa: ARG002 - no tag is ours
        return False

    def is_behind(self, tag: Tag, latest: Tag) -> bool:  # noqa: ARG002 - no tag is ours
        return False

    def has_sent(self, site: Site) -> bool:  # noqa: ARG002 - messages do not come here
        return True

    def lately(self, now: Nanoseconds) -> frozenset[Site]:  # noqa: ARG002 - its service knows who asked
        return frozenset()
