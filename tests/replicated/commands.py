"""Random commands on objects, and what becomes of them."""

import hashlib
from random import Random
from typing import Any

from antiphon.core.errors import UsageError
from antiphon.replicated.objects import Objects

MEMBERS = ("a", "b", "c")
Command = list[Any]


def drawn(rng: Random) -> Command:
    """A command on one of a few objects."""
    key, value = rng.choice("xy"), rng.choice([1, 2, True, "t", b"b", [1, {"z": None}]])
    lifetime = rng.choice([None, None, 5])
    ticket = str(rng.randrange(6))
    options: list[Command] = [
        ["m", "map", "get", key],
        ["m", "map", "set", key, value, lifetime],
        ["m", "map", "compare_and_set", key, rng.choice([None, value]), rng.choice([None, value]), lifetime],
        ["m", "map", "delete", key],
        ["n", "counter", "add", rng.randrange(-3, 4)],
        ["n", "counter", "get"],
        ["s", "set", rng.choice(["add", "remove", "contains"]), value],
        ["q", "queue", "put", value],
        ["q", "queue", "take", ticket],
        ["q", "queue", "cancel", ticket],
        ["q", "queue", rng.choice(["confirm", "give_back"]), rng.randrange(6)],
        ["l", "lock", "acquire", ticket, rng.random() < 0.5],
        ["l", "lock", "release", rng.randrange(8)],
        ["l", "lock", "cancel", ticket],
        ["p", "semaphore(2)", "acquire", ticket, rng.random() < 0.5],
        ["p", "semaphore(2)", "release", rng.randrange(8)],
        ["b", "barrier(2)", "arrive", ticket],
        ["b", "barrier(2)", "cancel", ticket],
        ["m", "queue", "put", 1],
        ["m", "map", "frob"],
        ["z", "zoo", "get"],
    ]
    return rng.choice(options)


def do(objects: Objects, rng: Random, turn: int) -> Any:
    """One thing that happens to a machine, and what it answers; an error is an answer."""
    luck = rng.random()
    if luck < 0.06:
        return objects.departed(rng.choice(MEMBERS))
    if luck < 0.12:
        return objects.tick(turn) if objects.wants_ticks else None
    try:
        return objects.apply_from(drawn(rng), rng.choice(MEMBERS))
    except UsageError as error:
        return str(error)


def digest(seed: int) -> str:
    objects, rng = Objects(), Random(seed)
    answers = [repr(do(objects, rng, turn)) for turn in range(300)]
    return hashlib.sha256(objects.snapshot() + "".join(answers).encode()).hexdigest()
