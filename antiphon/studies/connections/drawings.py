"""What a campaign draws for each protocol: a function from randomness to its scenario's parameters.

To add a protocol, write such a function and enter it in `DRAWINGS`. It begins with the parts that fit
(`small_group`, `rough_network`, `faults`) and adds the protocol's own knobs. What a scenario draws from its
seed itself, such as who crashes when, or to whom a message goes, needs no parameter here.

Groups are small, messages few and spells short, so that a run costs milliseconds and a campaign sees many
different ones: a mistake that needs more shows in the longer runs of the tests' swarms. About every second
knob stays calm. All of it depends on the seed alone.
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
    """A mesh or a medium that may lose, repeat, reorder and hold up what it carries."""
    return {
        "network": random.choice(["mesh", "mesh", "medium"]),
        "delay_ms": random.choice([0.1, 1.0, 5.0]),
        "jitter_ms": random.choice([0.0, 0.5, 3.0]),
        "loss": random.choice([0.0, 0.02, 0.1, 0.3]),
        "duplication": random.choice([0.0, 0.0, 0.1, 0.3]),
        "reordering": random.choice([0.0, 0.0, 0.1, 0.3]),
    }


def faults(random: Random, members: int) -> Parameters:
    """Absences, crashes and partitions; some pass before anybody can notice, others last."""
    return {
        "churn": min(random.choice([0, 0, 1, 2]), members),
        "crashes": random.choice([0, 0, 1, 2]),
        "partitions": random.choice([0, 0, 0, 1]),
        "calm_ms": random.choice([30.0, 100.0]),
        "away_ms": random.choice([20.0, 100.0, 300.0]),
    }


def everything(random: Random) -> Parameters:
    """What a protocol gets that survives everything, with a detector from outside now and then."""
    group = small_group(random)
    detector = {"detector_ms": random.choice([0.0, 0.0, 20.0])}
    return group | rough_network(random) | faults(random, group["members"]) | detector


def choice(random: Random, members: int) -> Parameters:
    """To how many a message goes, and whether messages of one batch may go to different members."""
    return {
        "destinations": random.randint(0, members),
        "varied": random.choice([False, True]),
        "own_share": random.choice([0.0, 0.1, 0.5]),
        "mixed": random.choice([False, True]),
    }


def overlap(random: Random) -> Parameters:
    """Groups of which a site is in one or several; now and then it sends to one that it is not in."""
    groups = random.randint(1, 4)
    return {
        "groups": groups,
        "overlap": round(random.uniform(1.0, min(3.0, groups)), 2),
        "outsiders": random.choice([0.0, 0.2, 0.5]),
    }


def nobody_goes(parameters: Parameters) -> bool:
    """Whether all stay, and so little is lost that none of them is held to be gone either."""
    return parameters["loss"] < 0.1 and not any(
        parameters[fault] for fault in ("churn", "crashes", "partitions")
    )


# Protocols


def template(random: Random) -> Parameters:
    """Best effort: whoever crashes forgets what it delivered, so nobody does."""
    return everything(random) | {"crashes": 0}


def fifo(random: Random) -> Parameters:
    """Everything, with each way to repair, to find what is stable and to find who is gone."""
    return everything(random) | {
        "repair": random.choice(REPAIRS),
        "stability": random.choice(list(PROTOCOLS)),
        "detector": random.choice(DETECTORS),
        "window": random.choice([1, 4, 64]),
        "retain": random.choice([4, 16, 256]),
        "apart_ms": random.choice([0.0, 0.0, 50.0]),
    }


def sequencer(random: Random) -> Parameters:
    """Everything; the schedule itself keeps other faults away from a crash of the sequencer."""
    return everything(random) | {
        "window": random.choice([1, 4, 64]),
        "order_window": random.choice([4, 16, 256]),
    }


def totem(random: Random) -> Parameters:
    """Fewer than half crash, for a majority must remember; the token has time to come round."""
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
    """Nobody goes: what a member has delivered may be lost when members do, and then no run could finish."""
    return totem(random) | {"churn": 0, "crashes": 0, "partitions": 0}


def dpg(random: Random) -> Parameters:
    """Somebody stays and nobody crashes; the LAN service gets a channel that keeps the order.

    Its order is agreed almost always: a campaign counts how often it is not.
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
        "partitions": 0,
    }
    parameters["churn"] = min(parameters["churn"], parameters["members"] - 1)
    calm = {"jitter_ms": 0.0, "duplication": 0.0, "reordering": 0.0}
    return parameters | (calm if service == "lan" else {})


def sco(random: Random) -> Parameters:
    """Everything, a choice of destinations, and every form that confirmations and vectors come in.

    What is delivered as soon as its causes are may be lost with those who go: so only where nobody does.
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
    return parameters | {"delivery": random.choice(["full", "causal"]) if nobody_goes(parameters) else "full"}


def fixed_members(random: Random) -> Parameters:
    """The rivals of SCO: members may be away and keep their memory, but none crashes."""
    parameters = everything(random)
    own = {"crashes": 0, "detector_ms": 0.0, "window": random.choice([1, 4, 16])}
    return parameters | choice(random, parameters["members"]) | own


def metagroups(random: Random) -> Parameters:
    """Everything, with groups that overlap at random, joins and leaves.

    What is delivered at once may be lost with those who go, or be ordered anew where a tree is altered: so
    only where neither happens. Where messages go past nodes there are many sites and groups, for among few
    there is seldom a node to go past.
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
    stays = nobody_goes(parameters) and not parameters["joins"] + parameters["leaves"]
    parameters |= {"delivery": random.choice(["safe", "agreed"]) if stays else "safe"}
    if random.random() < BYPASSING:
        many = {"members": 6, "groups": random.randint(4, 6), "overlap": round(random.uniform(1.6, 2.4), 2)}
        parameters |= many | {"bypass": True}
    return parameters


def fixed_groups(random: Random) -> Parameters:
    """The rivals of meta-groups: sites may be away and keep their memory; no crash, join or leave."""
    return everything(random) | overlap(random) | {"crashes": 0, "detector_ms": 0.0}


def token(random: Random) -> Parameters:
    """The same, with as many holders of a message before its delivery as there can be."""
    parameters = fixed_groups(random)
    return parameters | {"resilience": random.randint(1, parameters["members"])}


DRAWINGS: Final[Mapping[str, Drawing]] = {
    "co": fixed_members,
    "dpg": dpg,
    "fifo": fifo,
    "global-sequencer": fixed_groups,
    "group-sequencers": fixed_groups,
    "metagroups": metagroups,
    "propagation-tree": fixed_groups,
    "sco": sco,
    "sco-c0": fixed_members,
    "sco-c1": fixed_members,
    "sco-d0": fixed_members,
    "sequencer": sequencer,
    "template": template,
    "token": token,
    "totem": totem,
    "totem-agreed": totem_agreed,
    "two-phase": fixed_groups,
    "vector-clock": fixed_members,
}
"""By the name of the scenario."""


def drawing(protocol: str) -> Callable[[int], Parameters]:
    """From a run's seed to its parameters. A scenario of one's own is drawn `everything`."""
    if protocol not in DRAWINGS and ":" not in protocol:
        raise UsageError(
            f"There is no protocol '{protocol}' to draw connections for.",
            hint=f"There are: {', '.join(sorted(DRAWINGS))}.",
        )
    return partial(draw, protocol)


def draw(protocol: str, seed: int) -> Parameters:
    return DRAWINGS.get(protocol, everything)(Random(f"connections/{protocol}/{seed}"))
