"""What stability costs in each of its forms, for the same workload (Guo, chapter 7)."""

from functools import cache
from typing import Any

import pytest

from antiphon.core.errors import UsageError
from antiphon.protocols.fifo import PROMISES
from antiphon.sim.scenarios.piggyback import FORMS, SCENARIO
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.schema import Run
from tests.promises import broken_promises

WORKLOAD: dict[str, Any] = {"members": 6, "messages": 150, "rate": 600.0}


@cache
def measure(form: str, seed: int = 1, **knobs: Any) -> dict[str, Any]:
    """A run's metrics; its trace keeps every promise. Several tests look at the same run."""
    recorder = MemoryRecorder("r")
    metrics = SCENARIO.run(SCENARIO.configure({**WORKLOAD, "form": form, **knobs}), seed, recorder)
    run = Run(run="r", protocol=SCENARIO.name, promises=PROMISES, seed=seed)
    assert not broken_promises(PROMISES, recorder.events(), run)
    assert metrics["finished"]
    return dict(metrics)


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_each_technique_saves_bytes(loss: float) -> None:
    plain, changed, piggyback, shared = (measure(form, loss=loss) for form in FORMS)
    assert plain["bytes_per_message"] > changed["bytes_per_message"] > piggyback["bytes_per_message"]
    assert shared["control_bytes"] < plain["control_bytes"]
    assert piggyback["stability_messages"] * 10 < plain["stability_messages"]


def test_members_that_do_not_send_tell_their_rows_by_themselves() -> None:
    all_send, one_sends = measure("piggyback"), measure("piggyback", senders=1)
    assert one_sends["stability_messages"] > 10 * all_send["stability_messages"]
    assert one_sends["stability_messages"] < measure("plain", senders=1)["stability_messages"]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["plain", "changed", "piggyback"])
def test_a_shared_number_does_not_grow_with_the_group(form: str) -> None:
    """Control bytes aside, what a message carries: a row grows with the members, a number does not."""
    growth = {}
    for name in (form, "shared"):
        small, large = (measure(name, members=size)["bytes_per_message"] for size in (4, 12))
        growth[name] = large / small
    assert growth["shared"] < growth[form]


@pytest.mark.parametrize("form", FORMS)
def test_equal_seeds_give_equal_metrics(form: str) -> None:
    once, again = (measure.__wrapped__(form, 3, loss=0.1, senders=2) for _ in range(2))
    assert once == again


@pytest.mark.parametrize(
    "knobs", [{"form": "loud"}, {"senders": 9}, {"senders": 0}, {"rate": 0.0}, {"loss": 1.0}, {"members": 1}]
)
def test_what_makes_no_sense_is_said(knobs: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        SCENARIO.configure(WORKLOAD | knobs)
