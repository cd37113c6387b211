"""What a campaign draws for each protocol: a function from randomness to its scenario's parameters.

To add a protocol, write such a function and enter it in `DRAWINGS`. It begins with the parts that fit
(`small_group`, `rough_network`, `faults`) and adds the protocol's own knobs. What a scenario draws from its
seed itself, such as who crashes when, or a message's destinations, needs no parameter here.

Groups are small, messages few and spells short, so that a run costs milliseconds and a campaign sees many
different ones; the longer runs of the tests' swarms find bugs that need more. About every second knob stays
at its calm value. Everything depends on the seed alone.
"""

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, Final

from antiphon.core.errors import UsageError
from antiphon.protocols.detection import DETECTORS
from antiphon.protocols.fifo import REPAIRS
from antiphon.protocols.stability import PROTOCOLS

BYPASSING: Final = 0.25
"""Share of the runs of meta-groups in which messages go past nodes."""
Parameters = dict[str, Any]
Drawing = Callable[[Random], Parameters]


# Parts


def small_group(random: Random) -> Parameters:
    """Two to six members, more often few, and ten to sixty messages, within half a second."""
    messages = random.randint(10, 60)
    return {
        "members": random.choice([2, 2, 3, 3, 3, 4, 4, 5, 6]),
        "messages": messages,
        "size": random.choice([0, 10, 100]),
        "batch": random.choice([1, 1, 3]),
        "rate": messages / random.choice([0.02, 0.1, 0.2, 0.5]),
    }


def rough_network(random: Random) -> Parameters:
    """A mesh or a medium that may lose, duplicate, reorder and delay messages."""
    return {
        "network": random.choice(["mesh", "mesh", "medium"]),
        "delay_ms": random.choice([0.1, 1.0, 5.0]),
        "jitter_ms": random.choice([0.0, 0.5, 3.0]),
        "loss": random.choice([0.0, 0.02, 0.1, 0.3]),
        "duplication": random.choice([0.0, 0.0, 0.1, 0.3]),
        "reordering": random.choice([0.0, 0.0, 0.1, 0.3]),
    }


def faults(random: Random, members: int) -> Parameters:
    """Absences, crashes and partitions; some end before any member can notice, others last."""
    return {
        "churn": min(random.choice([0, 0, 1, 2]), members),
        "crashes": random.choice([0, 0, 1, 2]),
        "partitions": random.choice([0, 0, 0, 1]),
        "calm_ms": random.choice([30.0, 100.0]),
        "away_ms": random.choice([20.0, 100.0, 300.0]),
    }


def everything(random: Random) -> Parameters:
    """For a protocol that survives everything, sometimes with an external failure detector."""
    group = small_group(random)
    detector = {"detector_ms": random.choice([0.0, 0.0, 20.0])}
    return group | rough_network(random) | faults(random, group["members"]) | detector


def choice(random: Random, members: int) -> Parameters:
    """The number of a message's destinations, and whether messages of one batch may differ in them."""
    return {
        "destinations": random.randint(0, members),
        "varied": random.choice([False, True]),
        "own_share": random.choice([0.0, 0.1, 0.5]),
        "mixed": random.choice([False, True]),
    }


def overlap(random: Random) -> Parameters:
    """Overlapping groups; sometimes a site sends to a group that it is not in."""
    groups = random.randint(1, 4)
    return {
        "groups": groups,
        "overlap": round(random.uniform(1.0, min(3.0, groups)), 2),
        "outsiders": random.choice([0.0, 0.2, 0.5]),
    }


def all_stay(parameters: Parameters) -> bool:
    """Whether no member leaves, and the loss is too low for any to be suspected."""
    return parameters["loss"] < 0.1 and not any(
        parameters[fault] for fault in ("churn", "crashes", "partitions")
    )


# Protocols


def template(random: Random) -> Parameters:
    """Best effort, without crashes: a member that crashes forgets what it delivered."""
    return everything(random) | {"crashes": 0}


def fifo(random: Random) -> Parameters:
    """Everything, with each repair, each stability protocol, each detector, and as a small or large group."""
    return everything(random) | {
        "repair": random.choice(REPAIRS),
        "stability": random.choice(list(PROTOCOLS)),
        "detector": random.choice(DETECTORS),
        "window": random.choice([1, 4, 64]),
        "retain": random.choice([4, 16, 256]),
        "apart_ms": random.choice([0.0, 0.0, 50.0]),
        "neighbours": random.choice([2, 6]),
    }


def sequencer(random: Random) -> Parameters:
    """Everything; the schedule itself keeps other faults away from a crash of the sequencer."""
    return everything(random) | {
        "window": random.choice([1, 4, 64]),
        "order_window": random.choice([4, 16, 256]),
    }


def totem(random: Random) -> Parameters:
    """Fewer than half crash, since a majority must remember; the token has time for a round."""
    parameters = everything(random)
    round_trip_ms = 2 * (parameters["delay_ms"] + parameters["jitter_ms"]) + 1
    token_ms = max(random.choice([50.0, 150.0]), 2 * parameters["members"] * round_trip_ms)
    return parameters | {
        "detector_ms": 0.0,
        "loss": random.choice([0.0, 0.0, 0.02, 0.1]),
        "crashes": min(parameters["crashes"], (parameters["members"] - 1) // 2),
        "token_ms": token_ms,
        "consensus_ms": 1.2 * token_ms,
        "join_ms": random.choice([10.0, 20.0]),
        "window": random.choice([4, 50]),
        "max_messages": random.choice([1, 17]),
        "goodbye": random.choice([False, True]),
    }


def totem_agreed(random: Random) -> Parameters:
    """No member leaves: its deliveries could be lost with it, and then no run could finish."""
    return totem(random) | {"churn": 0, "crashes": 0, "partitions": 0}


def dpg(random: Random) -> Parameters:
    """At least one member stays and none crashes; the LAN service gets a channel that keeps the order.

    Its order is agreed almost always: a campaign counts how often it is not. After a partition members must
    report what they delivered alone, unless a quorum kept them from it.
    """
    service, network = random.choice(
        [("lan", "medium"), ("sequencer", "mesh"), ("sequencer", "medium"), ("bounded-delay", "mesh")]
    )
    parameters = everything(random) | {
        "detector_ms": 0.0,
        "network": network,
        "service": service,
        "loss": random.choice([0.0, 0.01, 0.03, 0.05]),
        "crashes": 0,
        "partitions": random.choice([0, 0, 1]),
    }
    parameters["churn"] = min(parameters["churn"], parameters["members"] - 1)
    if parameters["partitions"]:
        parameters["away_ms"] = random.choice([20.0, 100.0, 300.0, 1500.0])
        parameters["quorum"] = random.choice([0, 0, parameters["members"] // 2 + 1])
    calm = {"jitter_ms": 0.0, "duplication": 0.0, "reordering": 0.0}
    return parameters | (calm if service == "lan" else {})


def sco(random: Random) -> Parameters:
    """Everything, a choice of destinations, and every form of confirmations and vectors.

    A message delivered as soon as its causes are may be lost with members that leave: only drawn if all stay.
    """
    parameters = everything(random)
    parameters |= choice(random, parameters["members"]) | {
        "detector_ms": 0.0,
        "window": random.choice([1, 4, 64]),
        "buffers": random.choice([16, 64, 4096]),
        "confirm_ms": random.choice([2.0, 10.0]),
        "control_ms": random.choice([25.0, 60.0]),
        "acknowledge": random.choice(["causal", "continuous"]),
        "vectors": random.choice(["compressed", "plain"]),
    }
    delivery = random.choice(["full", "causal"]) if all_stay(parameters) else "full"
    return parameters | {"delivery": delivery, "gather_from": random.choice([1, 4, 16])}


def fixed_members(random: Random) -> Parameters:
    """The rivals of SCO: members may be absent and keep their memory, but none crashes."""
    parameters = everything(random)
    own = {"crashes": 0, "detector_ms": 0.0, "window": random.choice([1, 4, 16])}
    return parameters | choice(random, parameters["members"]) | own


def giving_up(random: Random) -> Parameters:
    """The same where senders may give messages up, soon or late."""
    return fixed_members(random) | {"give_up_ms": random.choice([0.0, 200.0, 400.0])}


def metagroups(random: Random) -> Parameters:
    """Everything, with groups that overlap at random, joins and leaves.

    A message delivered at once may be lost with members that leave, or reordered where a tree changes: it is
    only drawn if neither happens. Runs with bypassing have many sites and groups, since few groups rarely
    have a node to bypass.
    """
    parameters = everything(random) | overlap(random)
    parameters |= {
        "loss": random.choice([0.0, 0.0, 0.02, 0.1]),
        "joins": random.choice([0, 0, 1, 4]),
        "leaves": random.choice([0, 0, 1, 4]),
        "goodbye": random.choice([False, True]),
        "bodies": random.choice(["tree", "direct"]),
        "window": random.choice([4, 16, 64]),
        "acknowledge_ms": random.choice([0.0, 1.0]),
        "shape": random.choice(["shallow", "printed"]),
        "heartbeat_ms": 20.0,
        "suspect_ms": 150.0,
    }
    stays = all_stay(parameters) and not parameters["joins"] + parameters["leaves"]
    parameters |= {"delivery": random.choice(["safe", "agreed"]) if stays else "safe"}
    if random.random() < BYPASSING:
        many = {"members": 6, "groups": random.randint(4, 6), "overlap": round(random.uniform(1.6, 2.4), 2)}
        parameters |= many | {"bypass": True}
    return parameters


def fixed_groups(random: Random) -> Parameters:
    """The rivals of meta-groups: sites may be absent and keep their memory; no crash, join or leave."""
    return everything(random) | overlap(random) | {"crashes": 0, "detector_ms": 0.0}


def token(random: Random) -> Parameters:
    """The same, with any number of holders that a message needs before its delivery."""
    parameters = fixed_groups(random)
    return parameters | {"resilience": random.randint(1, parameters["members"])}


def founding(random: Random, drawn: Parameters) -> Parameters:
    """Where members keep disks some may start later, amid faults; others know only how many they are."""
    late = random.randint(0, (drawn["members"] - 1) // 2) if drawn["disk"] and random.random() < 0.3 else 0
    early = drawn["disk"] and random.random() < 0.3
    may_count = not (late or early or drawn["changes"])
    return {"late": late, "early": early, "expected": may_count and random.random() < 0.3}


def quorum(random: Random) -> Parameters:
    """Kill, stop, partition, loss, clocks set back, slow disks and members that change, around calls on a few
    keys.

    Without disks a majority must remember, so members crash only where there are three or more.
    """
    members = random.choice([2, 3, 3, 3, 4, 5, 5, 6])
    messages = random.randint(20, 120)
    network = rough_network(random)
    del network["network"]
    disk = random.random() < 0.7 or members < 3
    parameters = network | {
        "members": members,
        "messages": messages,
        "rate": messages / random.choice([0.1, 0.5, 1.0, 2.0]),
        "keys": random.choice([1, 1, 2, 3]),
        "crashes": random.choice([0, 1, 2, 4]),
        "partitions": random.choice([0, 0, 1, 2]),
        "pauses": min(random.choice([0, 0, 1, 2]), members),
        "calm_ms": random.choice([50.0, 200.0, 600.0]),
        "away_ms": random.choice([20.0, 100.0, 400.0]),
        "disk": disk,
        "disk_ms": random.choice([0.1, 2.0, 50.0]),
        "changes": random.choice([0, 0, 1]) if members > 2 else 0,
        "clock_jumps": random.choice([0, 0, 2, 5]),
        "snapshot_bytes": random.choice([200, 1000, 4000]),
    }
    return parameters | founding(random, parameters)


DRAWINGS: Final[Mapping[str, Drawing]] = {
    "co": fixed_members,
    "dpg": dpg,
    "fifo": fifo,
    "global-sequencer": fixed_groups,
    "group-sequencers": fixed_groups,
    "metagroups": metagroups,
    "propagation-tree": fixed_groups,
    "quorum": quorum,
    "sco": sco,
    "sco-c0": giving_up,
    "sco-c1": giving_up,
    "sco-d0": fixed_members,
    "sequencer": sequencer,
    "template": template,
    "token": token,
    "totem": totem,
    "totem-agreed": totem_agreed,
    "two-phase": fixed_groups,
    "vector-clock": fixed_members,
}
"""Drawings by the name of the scenario."""


def drawing(protocol: str) -> Callable[[int], Parameters]:
    """From a run's seed to its parameters. A scenario without a drawing gets `everything`."""
    if protocol not in DRAWINGS and ":" not in protocol:
        raise UsageError(
            f"There is no protocol '{protocol}' to draw connections for.",
            hint=f"There are: {', '.join(sorted(DRAWINGS))}.",
        )
    return partial(draw, protocol)


def draw(protocol: str, seed: int) -> Parameters:
    return DRAWINGS.get(protocol, everything)(Random(f"connections/{protocol}/{seed}"))
