"""Best-effort multicast, first in first out: the protocol to copy when you write one.

Source: none; it does the least that is still a protocol. A real one names its paper and sections here.

Assumes: nothing of the network. It may lose, delay, duplicate and reorder.
Guarantees, each proved by the checker of that name: *integrity* (only what was admitted is delivered),
*duplicate* (nothing is delivered twice) and *fifo* (each sender's messages are delivered in their order).
It does not repair losses: a message that comes after a later one of its sender is dropped. A member that
crashes forgets what it delivered, so these hold within one incarnation of it.

Deviations: a real one says here where it departs from its paper, why, and what was measured.

What to keep when copying: PDUs are frozen and have codes of their own; `handle` alone changes the state and
matches on the input; the three kinds of wrong stay apart. A caller's mistake raises `UsageError` before
anything changes, a peer's nonsense is counted in `ignored` and dropped, and what only a bug of ours could
bring about is an assertion.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from antiphon.core.effects import Absent, Admitted, Arrived, Deliver, Effect, Multicast, Present, Rejected
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import Admit, Departed, Input, Received, Returned, Start
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.admission import check_admission


class Message(Pdu, frozen=True, gc=False):
    """Messages number, number+1, … of its sender."""

    code: ClassVar[int] = 1
    number: int
    bodies: tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True)
class TemplateConfiguration:
    """The knobs, each with what raising it costs."""

    largest_batch: int = 64
    """Bodies in one batch. Raising it costs more at each loss: PDUs are longer."""

    def __post_init__(self) -> None:
        if self.largest_batch < 1:
            raise UsageError("A batch has at least one body.")


class Template:
    """One member of a group; implements `antiphon.core.protocol.Protocol`."""

    def __init__(self, site: Site, members: Sequence[Site], configuration: TemplateConfiguration) -> None:
        if site not in members:
            raise UsageError(f"The site {site} is not among the members.")
        self.ignored = 0
        self._site = site
        self._configuration = configuration
        self._started = False
        self._next_number = 0
        self._expected = dict.fromkeys(members, 0)

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:  # noqa: ARG002
        match event:
            case Start():
                return self._start(event)
            case Admit():
                return self._admit(event)
            case Received(sender=sender, pdu=Message() as message):
                return self._receive(sender, message)
            case Received():
                self.ignored += 1
                return []
            case Departed():
                # The driver records no absence; the member reports it itself.
                return [Absent()]
            case Returned():
                return [Present()]
            case _:
                return []

    def _start(self, event: Start) -> list[Effect]:
        if self._started:
            raise UsageError("This member has started already.")
        self._started = True
        self._next_number = event.next_number
        return [Present()] if event.incarnation else []

    def _admit(self, event: Admit) -> list[Effect]:
        check_admission(event, started=self._started, to_all="This protocol")
        if len(event.bodies) > self._configuration.largest_batch:
            return [Rejected(f"A batch has at most {self._configuration.largest_batch} bodies.")]
        bodies = tuple(event.bodies)
        number, self._next_number = self._next_number, self._next_number + len(bodies)
        return [
            Admitted(number, len(bodies), sum(map(len, bodies))),
            Multicast(Message(number, bodies)),
            *self._deliver(self._site, number, bodies),
        ]

    def _receive(self, sender: Site, message: Message) -> list[Effect]:
        known = sender in self._expected and sender != self._site
        if not known or message.number < 0 or not message.bodies:
            self.ignored += 1
            return []
        if message.number < self._expected[sender]:
            return []  # late or a duplicate: its turn has passed
        return [
            Arrived(sender, message.number, len(message.bodies)),
            *self._deliver(sender, message.number, message.bodies),
        ]

    def _deliver(self, sender: Site, number: int, bodies: tuple[bytes, ...]) -> list[Effect]:
        assert number >= self._expected[sender], "a delivery would go back in its sender's order"
        self._expected[sender] = number + len(bodies)
        return [Deliver(sender, number, bodies)]
