"""The control schemes' closed forms, against the text and against a group that is simulated literally."""

from random import Random
from statistics import fmean

import pytest

from antiphon.analysis.control_schemes import (
    SCHEMES,
    Scheme,
    Sending,
    Traffic,
    controls,
    delay,
    longest_wait,
    messages,
    ratios,
    text_messages,
)
from antiphon.core.errors import UsageError
from tests.analysis.deferral_twin import Twin


@pytest.mark.parametrize("destinations", [1, 2, 5, 9])
def test_unmodified_control_costs_what_the_text_says(destinations: int) -> None:
    traffic = Traffic(destinations=destinations)
    assert messages("C0", traffic) == text_messages("C0", destinations) == 3 * destinations
    assert controls("D0", traffic) == text_messages("D0", destinations) == destinations**2
    assert messages("D0", traffic) == destinations * (destinations + 1)
    assert text_messages("C1", destinations) is text_messages("D1", destinations) is None


def test_rounds() -> None:
    traffic = Traffic(round_units=4.0)
    assert (delay("C0", traffic), delay("D0", traffic)) == (12.0, 8.0)
    lonely = Traffic(destinations=1, round_units=4.0)
    assert (delay("C0", lonely), delay("D0", lonely), delay("D1", lonely)) == (12.0, 4.0, 4.0)
    assert ratios("D0", traffic) == pytest.approx((2.0, 2 / 3))


@pytest.mark.slow
@pytest.mark.parametrize("sending", ["even", "random"])
@pytest.mark.parametrize("scheme", ["C1", "D1"])
@pytest.mark.parametrize(("deferral", "destinations"), [(1.0, 5), (4.0, 5), (4.0, 2), (8.0, 3), (2.0, 8)])
def test_a_simulated_group_agrees(
    sending: Sending, scheme: Scheme, deferral: float, destinations: int
) -> None:
    traffic = Traffic(sending=sending, deferral=deferral, destinations=destinations)
    twin = Twin(traffic, scheme, Random(7))
    twin.run(400.0)
    measured = destinations + twin.controls / twin.sent
    # Debts that begin with an own message are in step with those that could settle them, if these are even.
    tolerance = 0.05 if sending == "random" else 0.08
    assert measured == pytest.approx(messages(scheme, traffic), rel=tolerance)
    assert fmean(twin.delays) == pytest.approx(delay(scheme, traffic), rel=tolerance)


def test_longer_deferral_trades_messages_for_delay() -> None:
    line = [Traffic(deferral=float(units)) for units in range(1, 9)]
    schemes: tuple[Scheme, ...] = ("C1", "D1")
    for scheme in schemes:
        counts = [messages(scheme, traffic) for traffic in line]
        delays = [delay(scheme, traffic) for traffic in line]
        assert counts == sorted(counts, reverse=True)
        assert delays == sorted(delays)


def test_without_deferral_confirmations_go_at_once() -> None:
    at_once = Traffic(deferral=0.0)
    assert longest_wait("D1", at_once, 4) == longest_wait("D1", Traffic(), 0) == 0.0
    assert delay("D1", at_once) == delay("D0", at_once)
    assert delay("C1", at_once) == delay("C0", at_once)


def test_distributed_control_is_never_faster_than_two_rounds() -> None:
    """So its delay cannot be half of three rounds, as section 4 has it."""
    for destinations in range(2, 10):
        assert ratios("D1", Traffic(destinations=destinations))[1] >= 2 / 3


def test_every_scheme_has_its_ratio() -> None:
    assert {scheme for scheme in SCHEMES if ratios(scheme, Traffic()) == (1.0, 1.0)} == {"C0"}


@pytest.mark.parametrize(
    "wrong", [{"destinations": 0}, {"destinations": 10}, {"rate": 0.0}, {"deferral": -1.0}]
)
def test_nonsense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Traffic(**wrong)  # type: ignore[arg-type]
