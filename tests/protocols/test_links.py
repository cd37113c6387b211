"""Reliable links: each rule between fakes, and two sites over a network that does everything wrong."""

from random import Random
from typing import ClassVar

import pytest

from antiphon.core.effects import Effect, Send, SetTimer
from antiphon.core.errors import UsageError
from antiphon.protocols.links import MOST_AT_ONCE, TICK, Held, Linked, Links, LinksConfiguration

KNOBS = LinksConfiguration(window=4)


class Word(Linked, frozen=True, gc=False):
    code: ClassVar[int] = 200
    text: str


def word(text: str, position: int = 0, held: int = 0, finished: int = 0) -> Word:
    return Word(position, held, finished, text)


class End:
    """One site's links, and what they want sent."""

    def __init__(self, site: str = "a", knobs: LinksConfiguration = KNOBS) -> None:
        self.effects: list[Effect] = []
        self.links = Links(site, ("a", "b"), knobs, self.effects)

    def sent(self) -> list[Word | Held]:
        found = [effect.pdu for effect in self.effects if isinstance(effect, Send)]
        self.effects.clear()
        assert all(isinstance(pdu, Word | Held) for pdu in found)
        return found  # type: ignore[return-value]

    def tick_at(self, now: int) -> list[Word | Held]:
        self.effects.clear()
        self.links.now = now
        self.links.tick()
        return self.sent()

    def take(self, *pdus: Word | Held) -> list[str]:
        taken = [pdu for given in pdus for pdu in self.links.receive("b", given)]
        return [pdu.text for pdu in taken if isinstance(pdu, Word)]


def test_what_comes_early_waits_and_what_comes_twice_is_dropped() -> None:
    end = End()
    assert end.take(word("two", 2), word("one", 1)) == ["one", "two"]
    assert end.links.early() == 0
    assert end.take(word("one", 1), word("two", 2), word("four", 4), word("four", 4)) == []
    assert end.links.early() == 1


def test_a_gap_is_named_and_exactly_that_is_repeated() -> None:
    receiver, sender = End(), End()
    receiver.take(word("one", 1), word("three", 3))
    (told,) = receiver.tick_at(KNOBS.acknowledge_ns)
    assert told == Held(1, 0, b"", False, (2,))
    for text in ("one", "two", "three"):
        sender.links.send("b", word(text))
    sender.sent()
    sender.take(Held(1, 0, b"", False, (2,)))
    assert sender.sent() == [word("two", 2)]
    assert sender.links.repeated == 1


def test_what_is_not_held_in_time_is_repeated_and_asked_for() -> None:
    end = End()
    end.links.send("b", word("one"))
    end.sent()
    assert end.tick_at(KNOBS.repeat_ns - 1) == []
    assert end.tick_at(KNOBS.repeat_ns) == [word("one", 1), Held(0, 0, b"", True, ())]
    assert len(end.tick_at(2 * KNOBS.repeat_ns)) == 2
    assert end.tick_at(4 * KNOBS.repeat_ns - 1) == [], "the pause grows while nothing is heard"
    assert len(end.tick_at(4 * KNOBS.repeat_ns)) == 2
    end.take(Held(1, 0, b"", False, ()))
    end.sent()
    assert len(end.tick_at(5 * KNOBS.repeat_ns)) == 1, "and is as it was after news"


def test_a_report_without_news_does_not_shorten_the_pause() -> None:
    end = End()
    end.links.send("b", word("one"))
    end.sent()
    for turns in (1, 2):
        assert len(end.tick_at(turns * KNOBS.repeat_ns)) == 2
    end.take(Held(0, 0, b"", False, ()))
    assert end.tick_at(3 * KNOBS.repeat_ns) == []


def test_held_but_not_finished_is_asked_for_and_not_repeated() -> None:
    """Otherwise a lost report of the end would never be repeated."""
    end = End()
    end.links.send("b", word("one"))
    end.take(Held(1, 0, b"", False, ()))
    end.sent()
    assert end.tick_at(KNOBS.repeat_ns) == [Held(0, 0, b"", True, ())]
    asked = End()
    asked.take(Held(0, 0, b"", True, ()))
    assert asked.tick_at(0) == [Held(0, 0, b"", False, ())]


def test_what_was_just_sent_is_not_overdue_because_something_else_is() -> None:
    end = End()
    end.links.send("b", word("long in work"))
    end.take(Held(1, 0, b"", False, ()))
    end.links.now = KNOBS.repeat_ns
    end.links.send("b", word("new"))
    assert end.tick_at(KNOBS.repeat_ns + 1) == []


def test_finished_is_reported_in_order_and_once() -> None:
    end = End()
    told: list[str] = []
    for text in ("one", "two", "three"):
        end.links.send("b", word(text), lambda text=text: told.append(text))  # type: ignore[misc]
    end.take(Held(3, 2, b"", False, ()), Held(3, 1, b"", False, ()), Held(2, 0, b"", False, ()))
    assert told == ["one", "two"]
    end.take(word("x", 1, held=3, finished=3))
    assert told == ["one", "two", "three"]
    assert end.links.unfinished() == 0


def test_what_is_finished_out_of_order_is_reported_at_once() -> None:
    """Else what waits for it, and has to come back over this link, could wait in a circle."""
    end = End()
    end.take(word("one", 1), word("two", 2))
    end.links.finish("b", 2)
    end.links.send("b", word("mine"))
    assert end.tick_at(0) == [Held(2, 0, b"\x02", False, ())]
    sender, told = End(), []
    for text in ("one", "two"):
        sender.links.send("b", word(text), lambda text=text: told.append(text))  # type: ignore[misc]
    sender.take(Held(2, 0, b"\x02", False, ()), Held(2, 0, b"\xfe", False, ()))
    assert told == ["two"]
    sender.take(Held(2, 2, b"", False, ()))
    assert told == ["two", "one"]
    end.links.finish("b", 1)
    assert end.tick_at(0) == [Held(2, 2, b"", False, ())]


def test_what_goes_the_other_way_carries_the_acknowledgement() -> None:
    end = End()
    end.take(word("one", 1))
    end.links.finish("b", 1)
    end.links.send("b", word("mine"))
    assert end.sent() == [word("mine", 1, held=1, finished=1)]
    assert end.tick_at(KNOBS.acknowledge_ns) == []


def test_a_pdu_that_is_passed_on_loses_the_stamps_of_the_link_it_came_by() -> None:
    end = End()
    end.links.send("b", word("theirs", position=7, held=5, finished=3))
    assert end.sent() == [word("theirs", 1)]


def test_no_more_than_a_window_is_under_way_and_the_rest_follows() -> None:
    end = End()
    for number in range(KNOBS.window + 2):
        end.links.send("b", word(str(number)))
    assert len(end.sent()) == KNOBS.window
    end.take(Held(1, 0, b"", False, ()))
    assert end.sent() == [word(str(KNOBS.window), KNOBS.window + 1)]


def test_beyond_the_window_nothing_is_kept() -> None:
    end = End()
    assert end.take(word("far", KNOBS.window + 1)) == []
    assert (end.links.ignored, end.links.early()) == (1, 0)
    assert end.take(word("last", KNOBS.window)) == []
    assert (end.links.ignored, end.links.early()) == (1, 1)


def test_as_many_gaps_may_be_named_as_are_named_at_once() -> None:
    end = End()
    end.take(Held(0, 0, b"", False, tuple(range(MOST_AT_ONCE))))
    assert end.links.ignored == 0


@pytest.mark.parametrize(
    "pdu",
    [
        word("never sent", 0),
        word("holds what was not sent", 1, held=1),
        Held(1, 0, b"", False, ()),
        Held(0, 1, b"", False, ()),
        Held(-1, -1, b"", False, ()),
        Held(0, 0, b"\x01", False, ()),
        Held(0, 0, b"", False, tuple(range(MOST_AT_ONCE + 1))),
    ],
)
def test_nonsense_is_counted_and_dropped(pdu: Word | Held) -> None:
    end = End()
    assert end.take(pdu) == []
    assert end.links.ignored == 1
    assert end.effects == []


def test_strangers_are_ignored() -> None:
    end = End()
    assert end.links.receive("z", word("one", 1)) == []
    assert end.links.ignored == 1


def test_the_timer_rests_when_there_is_nothing_to_wait_for() -> None:
    end = End()
    end.take(word("one", 1))
    assert [effect for effect in end.effects if isinstance(effect, SetTimer)] == [
        SetTimer(TICK, KNOBS.acknowledge_ns)
    ]
    end.effects.clear()
    end.links.tick()
    assert not any(isinstance(effect, SetTimer) for effect in end.effects)


def test_after_an_absence_the_timer_goes_on() -> None:
    end = End()
    end.links.send("b", word("one"))
    end.effects.clear()
    end.links.resume()
    assert end.effects == [SetTimer(TICK, KNOBS.acknowledge_ns)]


@pytest.mark.parametrize("knobs", [{"window": 0}, {"acknowledge_ns": 0}, {"repeat_ns": 0}])
def test_knobs_that_make_no_sense_are_refused(knobs: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        LinksConfiguration(**knobs)


@pytest.mark.parametrize("seed", range(20))
def test_everything_comes_once_and_in_order_whatever_the_network_does(seed: int) -> None:
    random = Random(seed)
    ends = {"a": End("a"), "b": End("b")}
    taken: dict[str, list[str]] = {"a": [], "b": []}
    finished = 0

    def settle() -> None:
        nonlocal finished
        finished += 1

    for number in range(30):
        for site, other in (("a", "b"), ("b", "a")):
            ends[site].links.send(other, word(f"{site}{number}"), settle)
    travelling: list[tuple[str, str, Word | Held]] = []
    for step in range(3000):
        for site, other in (("a", "b"), ("b", "a")):
            travelling += [(site, other, pdu) for pdu in ends[site].sent() if random.random() > 0.3]
        for _ in range(min(len(travelling), random.randint(0, 6))):
            place = random.randrange(len(travelling))
            source, target, pdu = travelling[place]
            if random.random() < 0.8:
                del travelling[place]
            for found in ends[target].links.receive(source, pdu):
                assert isinstance(found, Word)
                taken[target].append(found.text)
                ends[target].links.finish(source, found.position)
        for end in ends.values():
            end.links.now = step * KNOBS.acknowledge_ns
            end.links.tick()
        if finished == 60:
            break
    assert taken == {"a": [f"b{n}" for n in range(30)], "b": [f"a{n}" for n in range(30)]}, f"seed {seed}"
    assert finished == 60, f"seed {seed}"
