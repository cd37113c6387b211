"""The single-access LAN: what its detectors infer from losses, repeats and pauses."""

from collections.abc import Callable, Sequence
from random import Random

import pytest

from antiphon.core.effects import Multicast
from antiphon.core.errors import UsageError
from antiphon.core.ids import site_names
from antiphon.core.seeds import Seeds
from antiphon.core.wire import Codec
from antiphon.protocols.dpg.pdus import PDUS, Farewell, Message
from antiphon.protocols.dpg.services.base import Service
from antiphon.protocols.dpg.services.lan import LanService
from antiphon.sim.medium import Medium
from tests.protocols.harness.dpg_channel import FakeMember, message, remulticast, report


def started(
    detector: str = "overwrite", transmit_ns: int = 0, byte_ns: float = 0.0
) -> tuple[LanService, FakeMember]:
    service, channel = LanService(detector, transmit_ns, byte_ns), FakeMember("a")
    channel.attach_to(service)
    service.start(0, 1)
    return service, channel


def hear(service: Service, tag: int, *, now: int = 0, after_loss: bool = False, fresh: bool = True) -> None:
    service.on_message(now, "b", message(tag), after_loss=after_loss, fresh=fresh)


def test_the_first_message_follows_nothing_and_the_next_ones_follow_it() -> None:
    service, channel = started()
    for tag in (5, 6, 7):
        hear(service, tag)
    assert channel.heard_tags == [(5, False), (6, True), (7, True)]


def test_who_begins_with_the_whole_group_has_missed_nothing_before_the_first_message() -> None:
    service, channel = LanService(), FakeMember("a")
    channel.attach_to(service)
    service.start(0, 0)
    service.take_part(0)
    hear(service, 5)
    service.start(1, 0)
    service.take_part(1)
    hear(service, 6)
    assert channel.heard_tags == [(5, True), (6, False)]


def test_a_loss_lies_just_before_the_message_that_tells_of_it() -> None:
    service, channel = started()
    hear(service, 5)
    hear(service, 6)
    hear(service, 7, after_loss=True)
    hear(service, 8)
    assert channel.heard_tags[1:] == [(6, True), (7, False), (8, True)]
    assert service.figures() == {"losses_noticed": 1, "contiguities": 2}


def test_a_loss_before_a_report_or_any_other_pdu_counts_until_a_message_comes() -> None:
    told: list[Callable[[LanService], object]] = [
        lambda service: service.on_report(1, "b", report(), after_loss=True),
        lambda service: service.on_other_pdu(1, "b", Farewell(0), after_loss=True),
        lambda service: service.on_other_pdu(1, "b", remulticast("c", message(9)), after_loss=True),
    ]
    for tell in told:
        service, channel = started()
        hear(service, 5)
        tell(service)
        service.on_report(2, "c", report(), after_loss=False)
        hear(service, 6)
        hear(service, 7)
        assert channel.heard_tags == [(5, False), (6, False), (7, True)]


def test_a_repeated_copy_is_no_event_of_the_channel_but_its_loss_is() -> None:
    service, channel = started()
    hear(service, 5)
    hear(service, 6)
    hear(service, 5, fresh=False)
    hear(service, 7)
    hear(service, 5, fresh=False, after_loss=True)
    hear(service, 8)
    assert channel.heard_tags == [(5, False), (6, True), (7, True), (8, False)]


def test_after_an_absence_nothing_is_contiguous_with_what_was_before() -> None:
    service, channel = started()
    hear(service, 5)
    service.depart(1)
    service.start(2, 1)
    service.take_part(2)
    hear(service, 6)
    hear(service, 7)
    assert channel.heard_tags[1:] == [(6, False), (7, True)]


def test_own_messages_are_transmitted_and_say_nothing_else() -> None:
    service, channel = started()
    own = message(3)
    assert service.stamp(0) == 0
    service.hand_over(0, own)
    assert channel.effects == [Multicast(own)]
    assert channel.heard_tags == []
    assert (service.note(0), service.reports_ordered, service.hears_itself) == (b"", True, False)


@pytest.mark.parametrize(
    ("pause_ns", "contiguous"), [(99, True), (100, False), (500, False)], ids=["close", "just not", "far"]
)
def test_the_timing_detector_needs_receptions_closer_than_a_transmission(
    pause_ns: int, contiguous: bool
) -> None:
    service, channel = started("timing", 100)
    hear(service, 5, now=1000)
    hear(service, 6, now=1000 + pause_ns)
    assert channel.heard_tags == [(5, False), (6, contiguous)]


def test_the_timing_detector_takes_off_what_the_message_itself_needed() -> None:
    service, channel = started("timing", 100, byte_ns=20.0)
    service.on_message(1000, "b", message(5), after_loss=False, fresh=True)
    service.on_message(1299, "b", message(6, size=10), after_loss=False, fresh=True)
    service.on_message(1599, "b", message(7, size=10), after_loss=False, fresh=True)
    assert channel.heard_tags == [(5, False), (6, True), (7, False)]


def test_the_timing_detector_heeds_losses_where_they_are_told() -> None:
    service, channel = started("timing", 100)
    hear(service, 5, now=1000)
    service.on_report(1010, "b", report(), after_loss=True)
    hear(service, 6, now=1020)
    assert channel.heard_tags == [(5, False), (6, False)]


@pytest.mark.parametrize(("detector", "transmit_ns"), [("psychic", 0), ("timing", 0), ("timing", -1)])
def test_a_detector_that_cannot_work_is_refused(detector: str, transmit_ns: int) -> None:
    with pytest.raises(UsageError):
        LanService(detector, transmit_ns)


def play(
    seed: int, *, buffers: int, miss: float, services: Sequence[LanService], size: int
) -> list[FakeMember]:
    """Everyone but the first, who only listens, sends at random; what the medium carries is what is heard."""
    random, names = Random(seed), site_names(len(services))
    channels = [FakeMember(name) for name in names]
    medium = Medium(len(services), Seeds(seed), buffers=buffers, miss=miss, processing_ns=200_000)
    for service, channel in zip(services, channels, strict=True):
        channel.attach_to(service)
        service.start(0, 0)
    codec, now = Codec(PDUS), 0
    for tag in range(1, 401):
        now += random.randrange(400_000)
        sender = random.randrange(1, len(services))
        pdu = report() if random.random() < 0.2 else message(tag, size=size)
        medium.send(now, sender, None, pdu, len(codec.encode(pdu)))
    while arrivals := medium.advance(1 << 60):
        for arrival in arrivals:
            if isinstance(arrival.pdu, Message):
                services[arrival.target].on_message(
                    arrival.time_ns,
                    names[arrival.source],
                    arrival.pdu,
                    after_loss=arrival.after_loss,
                    fresh=True,
                )
            else:
                services[arrival.target].on_report(
                    arrival.time_ns, names[arrival.source], report(), after_loss=arrival.after_loss
                )
    return channels


@pytest.mark.parametrize("buffers", [1, 3, 20])
def test_on_a_medium_that_loses_frames_no_contiguity_is_false(buffers: int) -> None:
    """Tags rise in the order of transmission; reports have taken some, which are never among them."""
    inferred = heard = 0
    for seed in range(10):
        channel = play(seed, buffers=buffers, miss=0.05, services=[LanService() for _ in range(4)], size=60)[
            0
        ]
        sent = sorted({tag for tag, _ in play_all(seed)})
        places = {tag: place for place, tag in enumerate(sent)}
        tags = [tag for tag, _ in channel.heard_tags]
        assert tags == sorted(tags)
        for before, (tag, contiguous) in zip(tags, channel.heard_tags[1:], strict=False):
            heard += 1
            inferred += contiguous
            assert not contiguous or places[tag] == places[before] + 1
    assert heard > 1000
    assert inferred > heard // 2


def play_all(seed: int) -> list[tuple[int, bool]]:
    """What the first one hears if nothing is lost: everything."""
    services = [LanService() for _ in range(4)]
    return play(seed, buffers=1000, miss=0.0, services=services, size=60)[0].heard_tags


def test_as_many_buffers_as_are_needed_lose_nothing_and_everything_is_contiguous() -> None:
    assert [contiguous for _, contiguous in play_all(1)][1:] == [True] * (len(play_all(1)) - 1)
