"""The profiles: each composes what there is, and is refused where it cannot run."""

import pytest

import antiphon
from antiphon.core.errors import UsageError
from antiphon.live.orders import ORDERS, Sequencer, compose, make_order
from antiphon.protocols.profiles import PROFILES, find_profile
from antiphon.sim.scenarios import find_scenario


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_has_the_options_that_the_simulator_takes(name: str) -> None:
    profile = find_profile(name)
    configuration = find_scenario(profile.order).configure(profile.options)
    for option, value in profile.options.items():
        assert getattr(configuration, option) == value


@pytest.mark.parametrize("name", [name for name, each in PROFILES.items() if each.order in ORDERS])
def test_every_profile_of_a_live_order_has_the_options_that_it_takes(name: str) -> None:
    profile = find_profile(name)
    named = {"sequencer": "alice"} if profile.order == "sequencer" else {}
    order = make_order(*compose(name, "fifo", named))
    assert order.name == profile.order
    for option, value in profile.options.items():
        assert getattr(order, option) == value


def test_a_group_takes_a_profile_by_its_name() -> None:
    assert antiphon.join("profiles", name="a", profile="srm").order == "fifo"
    member = antiphon.join("profiles", name="a", profile="tandem", sequencer="a")
    assert member.order == "sequencer"


def test_an_option_beside_a_profile_takes_the_place_of_the_profiles() -> None:
    chosen = compose("amoeba", "fifo", {"sequencer": "alice", "window": 3, "order_window": None})
    assert make_order(*chosen) == Sequencer(sequencer="alice", window=3)


@pytest.mark.parametrize(
    ("profile", "order", "sentence"),
    [
        ("amoba", "fifo", "There is no profile 'amoba'."),
        ("amoeba", "causal", "has the order 'sequencer'"),
        ("totem", "fifo", "runs in the simulator only"),
    ],
)
def test_a_profile_that_makes_no_sense_is_refused(profile: str, order: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        compose(profile, order, {})
