"""The swarm of the profiles: each under loss, duplication, reordering, absences and crashes.

Once the faults have healed everyone takes part and finishes. `ANTIPHON_PROFILE_SEEDS` sets how many seeds are
tried of each profile; a failing seed's last line is the command that replays it.
"""

import os
from random import Random
from typing import Any

import pytest

from antiphon.protocols.profiles import PROFILES, find_profile
from antiphon.sim.scenarios import profile
from tests.sim.swarming import judge

SEEDS = int(os.environ.get("ANTIPHON_PROFILE_SEEDS", "3"))


def draw(name: str, seed: int) -> dict[str, Any]:
    """A group, a network and faults, as many as the profile's order promises to survive."""
    random = Random(f"profile/{name}/{seed}")
    members, messages = random.randint(2, 9), random.randint(30, 110)
    return {
        "profile": name,
        "members": members,
        "senders": random.choice([None, 1]),
        "messages": messages,
        "size": random.choice([10, 100]),
        "batch": random.choice([1, 1, 3]),
        "rate": messages / random.choice([0.2, 1.0, 2.0]),
        "network": random.choice(["mesh", "mesh", "medium"]),
        "delay_ms": random.choice([0.1, 1.0, 5.0]),
        "jitter_ms": random.choice([0.0, 0.5, 3.0]),
        "duplication": random.choice([0.0, 0.1, 0.3]),
        "reordering": random.choice([0.0, 0.1, 0.3]),
        **faults(random, members, of_ring=find_profile(name).order.startswith("totem")),
    }


def faults(random: Random, members: int, *, of_ring: bool) -> dict[str, Any]:
    """On a ring fewer than half crash, since a majority must remember, and a fifth lost stops it for long."""
    most = (members - 1) // 2 if of_ring else 2
    return {
        "churn": random.choice([0, 1, min(2, members - 1)]),
        "crashes": min(most, random.choice([0, 1, 2])),
        "partitions": random.choice([0, 0, 1]),
        "loss": random.choice([0.0, 0.05, 0.1 if of_ring else 0.2]),
    }


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_keeps_its_promises_and_finishes(name: str) -> None:
    for seed in range(SEEDS):
        judge(profile.SCENARIO, draw(name, seed), seed)
