"""Advice that can be taken: what `antiphon advise --json` prints is what a group and the shell accept."""

import asyncio
import json
import shlex
from typing import Any

import pytest

from antiphon import testing
from antiphon.cli.live_options import given
from antiphon.cli.main import build, run
from antiphon.live.orders import Fifo, make_order
from antiphon.studies.advice.advising import Setting, advise

SLOW = "--senders 8 --bandwidth 30000 --rate 1 --buffer 640 --members 8"
ADVISED = {
    "gossip": f"{SLOW} --loss 0.3",
    "s-gossip": f"{SLOW} --loss 0.3 --density sparse",
    "s-coordp": "--senders 8 --bandwidth 1000000 --rate 1 --buffer 640 --members 8 --density sparse",
}
"""Settings by the protocol that is advised for them."""


def take(settings: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run(["advise", *shlex.split(settings), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["take"]
    return found


@pytest.mark.parametrize(("protocol", "settings"), ADVISED.items(), ids=ADVISED)
def test_a_group_takes_the_advice(protocol: str, settings: str, capsys: pytest.CaptureFixture[str]) -> None:
    taken = take(settings, capsys)
    order = make_order(taken["order"], taken["options"])
    assert isinstance(order, Fifo)
    assert order.configuration().stability == protocol
    assert order.tuning.turned()

    async def story() -> None:
        async with testing.cluster(8, seed=1, order=taken["order"], **taken["options"]) as cluster:
            sent = [await group.send(b"hello") for group in cluster]
            await asyncio.gather(*(message.stable() for message in sent))

    testing.run(story())


@pytest.mark.parametrize("settings", ADVISED.values(), ids=ADVISED)
def test_the_shell_takes_the_advice(settings: str, capsys: pytest.CaptureFixture[str]) -> None:
    taken = take(settings, capsys)
    program, *tokens = shlex.split(taken["command"])
    assert program == "antiphon"
    _, bound, _ = build(tokens).parse_args(tokens, exit_on_error=False)
    assert bound.arguments["order"] == taken["order"]
    assert given(bound.arguments["options"]) == taken["options"]


def test_people_are_told_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    taken = take(ADVISED["gossip"], capsys)
    assert run(["advise", *shlex.split(ADVISED["gossip"])]) == 0
    assert taken["command"] in capsys.readouterr().out


@pytest.mark.parametrize("density", ["dense", "sparse"])
def test_every_candidate_is_one_that_a_group_accepts(density: str) -> None:
    advice = advise(
        Setting(members=20, senders=5, bandwidth=30_000, rate=1, buffer=640, loss=0.05, density=density)
    )
    for candidate in (advice.best, *advice.rejected):
        order = make_order("fifo", candidate.options)
        assert isinstance(order, Fifo)
        assert order.configuration().stability == candidate.protocol
        assert (order.subset, order.subgroup) == (candidate.subset or 1, candidate.subgroup)
        assert (order.step_ns or 0) / 1e9 == pytest.approx(candidate.step_s or 0)
