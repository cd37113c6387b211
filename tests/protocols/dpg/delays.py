"""What tests of the bounded-delay service share."""

from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.protocols.dpg.services.bounded_delay import RELEASE, BoundedDelayService, Vouch
from antiphon.protocols.dpg.services.clocks import stamp_at
from tests.protocols.harness.dpg_channel import FakeMember, message

MS = MILLISECOND_NS
BOUND = 10 * MS
START = SECOND_NS


def started(detector: str = "delays", queue_limit: int = 4096) -> tuple[BoundedDelayService, FakeMember]:
    """A member that takes part, by a clock that needs no adjustment and with a bound that does not move."""
    service = BoundedDelayService(BOUND, adaptive=False, detector=detector, queue_limit=queue_limit)
    channel = FakeMember("a")
    channel.attach_to(service)
    service.start(START, 1)
    service.take_part(START)
    return service, channel


def at(sent_ns: Nanoseconds) -> int:
    """The stamp of a message that is sent this long after the start."""
    return stamp_at(START + sent_ns, BOUND)


def hear(
    service: BoundedDelayService,
    tag: int,
    number: int,
    sent_ns: Nanoseconds,
    *,
    sender: str = "b",
    took_ns: Nanoseconds = MS,
    previous: int = 0,
    after_loss: bool = False,
    fresh: bool = True,
) -> None:
    service.on_message(
        START + sent_ns + took_ns,
        sender,
        message(tag, stamp=at(sent_ns), number=number, previous=previous, incarnation=1),
        after_loss=after_loss,
        fresh=fresh,
    )


def release(service: BoundedDelayService, upto_ns: Nanoseconds) -> None:
    service.on_timer(at(upto_ns) + 1, RELEASE)


def vouch(service: BoundedDelayService, sender: str, number: int, sent_ns: Nanoseconds) -> None:
    service.on_other_pdu(START + sent_ns + MS, sender, Vouch(1, number, at(sent_ns)), after_loss=False)
