"""`antiphon.join`: what a member may be told, looked at before anything is opened."""

import os
import socket
from pathlib import Path

from antiphon.core.errors import UsageError
from antiphon.core.extras import require_extra
from antiphon.core.ids import Group as GroupName
from antiphon.core.ids import Site
from antiphon.live.group import Group
from antiphon.live.history import USUAL_BYTES
from antiphon.live.keys import KeyFile, KeyRing
from antiphon.live.limits import Limits, require_name
from antiphon.live.networks import Network, parse_network, require_key
from antiphon.live.orders import (
    REPAIRS,
    AcrossOptions,
    StabilityOptions,
    agreed_options,
    check_across,
    check_history,
    check_service,
    check_stability,
    find_order,
)
from antiphon.protocols.fifo import HistoryRole


def join(
    group: GroupName,
    *,
    name: Site | None = None,
    order: str = "fifo",
    sequencer: Site | None = None,
    service: str | None = None,
    repair: str = "hybrid",
    stability: str | None = None,
    errors: str | None = None,
    trigger: str | None = None,
    piggyback: bool = False,
    detector: str | None = None,
    causal: bool = False,
    bodies: str | None = None,
    bypass: bool = False,
    network: str | Network = "loopback",
    key: str | Path | KeyRing | None = None,
    insecure: bool = False,
    trace: str | Path | None = None,
    run: str | None = None,
    history: str | Path | None = None,
    history_bytes: int = USUAL_BYTES,
    catch_up: bool = False,
    limits: Limits | None = None,
) -> Group:
    """A member of a group: `async with join(...) as group`, or `group = await join(...)` and `group.leave()`.

    name: who this member is, unique in the group; by default the host's name and the process id.
    order: 'fifo', 'causal' (nothing overtakes what it may have come of, and messages go to whom they
        concern), 'total' (one order for all messages, whoever comes and goes), 'sequencer' (one total order,
        given by the member named in `sequencer`) or 'total-across' (several groups: see `antiphon.node`).
    service: what 'total' stands on: sequencer (the default), bounded-delay or lan; all members use the same.
    repair: how 'fifo' makes up for losses: hybrid, acknowledge, request, request-all or any.
    stability: how 'fifo' finds out what all hold: coordp (the default), fulldist, train, gossip,
        gossip-adaptive, gossip-hops, s-coordp, s-train or s-gossip; all members use the same, as with the
        next three.
    errors: one of the same protocols, by which members find out what they have missed; by default senders
        announce how far their messages go.
    trigger: when a round of `stability` begins: 'timer' (the default), or 'adaptive', by how full the buffers
        are.
    piggyback: let what members hold ride on their messages, instead of rounds.
    detector: how 'fifo' finds out who is gone: heartbeat (the default), polling or gossip; all use the same.
    causal: with 'total-across': causal order across groups, too; all nodes say the same, as with the next
        two.
    bodies: with 'total-across': how bodies travel, 'tree' (the default) or 'direct'.
    bypass: with 'total-across': shorter ways, for which only any two groups are in one order.
    network: 'loopback', 'multicast:INTERFACE', 'peers:HOST:PORT,...', or a Network.
    key: a key file made by `antiphon keygen`, or a KeyRing; required beyond loopback unless `insecure`. A
        file that changes is taken up within a second.
    trace: a folder to which this member appends what it does; `antiphon audit` reads it.
    run: the run's name in the trace; by default the group's. All members must use the same.
    history: a folder in which this member logs what is delivered, at most `history_bytes`, for members that
        join later ('fifo' only).
    catch_up: deliver first what the members with a history still have; see `wait_for_history`.
    """
    site = require_name(f"{socket.gethostname()}-{os.getpid()}" if name is None else name)
    if not group:
        raise UsageError("A group needs a name.")
    if not group.isprintable():
        raise UsageError(f"{group!r} is no name for a group.", hint="Use printable characters.")
    if sequencer is not None:
        require_name(sequencer)
    if repair not in REPAIRS:
        raise UsageError(f"There is no repair '{repair}'.", hint=f"There are: {', '.join(REPAIRS)}.")
    place = parse_network(network) if isinstance(network, str) else network
    keys = key if isinstance(key, KeyRing) or key is None else KeyFile(Path(key))
    require_key(place, keys, insecure=insecure)
    find_order(order)
    told = StabilityOptions(
        stability=stability, errors=errors, trigger=trigger, piggyback=piggyback, detector=detector
    )
    check_stability(order, repair, told)
    across = AcrossOptions(causal=causal, bodies=bodies, bypass=bypass)
    check_across(order, across)
    chosen = check_service(order, service)
    role = HistoryRole(history is not None, catch_up)
    check_history(order, role)
    if trace is not None:
        require_extra("trace", "Traces need")
    folder = None if trace is None else Path(trace)
    options = {
        "order": order,
        "sequencer": sequencer,
        "repair": repair,
        "network": str(network),
        **told.given(),
        **across.given(),
    }
    if order == "total":
        options["service"] = chosen
    archive = None if history is None else (Path(history), history_bytes)
    return Group(
        group, site, options=options, agreed=agreed_options(order, sequencer, repair, chosen, told, across),
        stability=told, across=across, role=role, archive=archive,
        network=place, keys=keys, trace=folder, run=run or group, limits=limits or Limits(),
    )  # fmt: skip
