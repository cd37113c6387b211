"""Ids, time, seeds and errors."""

import pickle
import subprocess
import sys

import pytest

from antiphon.core.errors import AntiphonError, InputError, UsageError
from antiphon.core.ids import MessageId, site_names
from antiphon.core.seeds import Seeds
from antiphon.core.time import SECOND_NS, from_seconds, to_seconds


def test_site_names_sort_as_they_count() -> None:
    names = site_names(101)
    assert names == sorted(names)
    assert names[0] == "s000"
    assert names[-1] == "s100"
    assert site_names(0) == []


def test_a_message_id_reads_as_sender_and_number() -> None:
    assert str(MessageId("s1", 4)) == "s1:4"


@pytest.mark.parametrize(("seconds", "nanoseconds"), [(0, 0), (1.5, 1_500_000_000), (1e-9, 1)])
def test_seconds_become_whole_nanoseconds(seconds: float, nanoseconds: int) -> None:
    assert from_seconds(seconds) == nanoseconds
    assert to_seconds(nanoseconds) == pytest.approx(seconds)
    assert SECOND_NS == 10**9


def test_streams_differ_by_name_and_by_seed_and_repeat() -> None:
    draws = {(seed, name): Seeds(seed).stream(name).random() for seed in (1, 2) for name in ("loss", "delay")}
    assert len(set(draws.values())) == 4
    assert Seeds(1).stream("loss").random() == draws[1, "loss"]
    assert Seeds(1).array_stream("loss").random() == Seeds(1).array_stream("loss").random()


def test_streams_do_not_depend_on_the_hash_seed() -> None:
    program = "from antiphon.core.seeds import Seeds; print(Seeds(5).stream('x').random())"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_errors_carry_a_hint_and_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(InputError("No such trace.", hint="Look elsewhere.")))
    assert isinstance(error, InputError)
    assert isinstance(error, AntiphonError)
    assert (error.sentence, error.hint) == ("No such trace.", "Look elsewhere.")
    assert str(error) == "No such trace. Hint: Look elsewhere."
    assert (str(UsageError("Bad.")), UsageError("Bad.").hint) == ("Bad.", None)
