"""`antiphon.join`: validates the options before anything is opened."""

import os
import socket
from pathlib import Path
from types import NoneType
from typing import Any

from antiphon.core.errors import UsageError
from antiphon.core.extras import require_extra
from antiphon.core.ids import Group as GroupName
from antiphon.core.ids import Site
from antiphon.live.group import Group
from antiphon.live.history import USUAL_BYTES
from antiphon.live.keys import KeyFile, KeyRing
from antiphon.live.limits import Limits, require_group_name, require_name
from antiphon.live.networks import Network, parse_network, require_key
from antiphon.live.orders import NO_HISTORY, Order, Total, compose, make_order
from antiphon.live.tag_channel import find_channel
from antiphon.protocols.fifo import HistoryRole


def join(
    group: GroupName,
    *,
    name: Site | None = None,
    order: str | Order = "fifo",
    profile: str | None = None,
    network: str | Network = "loopback",
    key: str | Path | KeyRing | None = None,
    insecure: bool = False,
    trace: str | Path | None = None,
    run: str | None = None,
    history: str | Path | None = None,
    history_bytes: int = USUAL_BYTES,
    catch_up: bool = False,
    limits: Limits | None = None,
    **options: Any,
) -> Group:
    """A member of a group: `async with join(...) as group`, or `group = await join(...)` and `group.leave()`.

    name: this member's name, unique in the group; by default the host's name and the process id.
    order: an order, such as `antiphon.Total(service="lan")`, or its name: 'fifo', 'causal' (no message
        overtakes one that may have caused it, and messages go to their destinations only), 'total' (one order
        for all messages; members may come and go), 'sequencer' (one total order, given by the member
        named in `sequencer`) or 'total-across' (several groups: see `antiphon.node`).
    profile: a system to be like, such as 'srm', which stands for an order and its options: docs/profiles.md.
        Options given beside it take the place of the profile's.
    options: the options of that order, where its name is given; docs/live.md has a table of them.
    network: 'loopback', 'multicast:INTERFACE', 'peers:HOST:PORT,...', or a Network.
    key: a key file made by `antiphon keygen`, or a KeyRing; required beyond loopback unless `insecure`. A
        changed file is loaded within a second.
    trace: a folder to which this member appends its trace; `antiphon audit` reads it.
    run: the run's name in the trace; by default the group's. All members must use the same.
    history: a folder in which this member logs what is delivered, at most `history_bytes`, for members that
        join later ('fifo' only).
    catch_up: deliver first what the members with a history still have; see `wait_for_history`.
    """
    _require_types(
        group=(group, str), order=(order, (str, Order)), profile=(profile, (str, NoneType)),
        network=(network, (str, Network)), key=(key, (str, os.PathLike, KeyRing, NoneType)),
        insecure=(insecure, bool), trace=(trace, (str, os.PathLike, NoneType)), run=(run, (str, NoneType)),
        history=(history, (str, os.PathLike, NoneType)), history_bytes=(history_bytes, int),
        catch_up=(catch_up, bool), limits=(limits, (Limits, NoneType)),
    )  # fmt: skip
    _require_paths(key=key, trace=trace, history=history)
    site = require_name(f"{socket.gethostname()}-{os.getpid()}" if name is None else name)
    if not group:
        raise UsageError("A group needs a name.")
    require_group_name(group)
    place = parse_network(network) if isinstance(network, str) else network
    keys = key if isinstance(key, KeyRing) or key is None else KeyFile(Path(key))
    require_key(place, keys, insecure=insecure)
    chosen = make_order(*compose(profile, order, options))
    channel = None
    if isinstance(chosen, Total) and chosen.outside is not None:
        channel = find_channel(
            chosen.outside, chosen.outside_network, chosen.outside_key, place, keys, insecure=insecure
        )
    role = HistoryRole(history is not None, catch_up)
    if role != NO_HISTORY and not chosen.keeps_history:
        raise UsageError(
            f"The order '{chosen.name}' keeps no history for late joiners.",
            hint="Leave history= and catch_up= out, or choose order='fifo'.",
        )
    if trace is not None:
        require_extra("trace", "Traces need")
    folder = None if trace is None else Path(trace)
    archive = None if history is None else (Path(history), history_bytes)
    return Group(
        group, site, order=chosen, role=role, archive=archive,
        network=place, keys=keys, trace=folder, run=run or group, limits=limits or Limits(),
        tag_channel=channel,
    )  # fmt: skip


def _require_types(**given: tuple[Any, type | tuple[type, ...]]) -> None:
    """Validate the types of arguments: a wrong one must not show only while the group runs."""
    for name, (value, kinds) in given.items():
        some = kinds if isinstance(kinds, tuple) else (kinds,)
        if not isinstance(value, some) or (isinstance(value, bool) and bool not in some):
            words = " or ".join("None" if kind is NoneType else kind.__name__ for kind in some)
            raise UsageError(f"{name}={value!r} is not of a type that is taken here.", hint=f"Give {words}.")


def _require_paths(**given: Any) -> None:
    """Validate that the given paths can be paths of this system."""
    for name, path in given.items():
        if isinstance(path, str | os.PathLike):
            try:
                usable = b"\0" not in os.fsencode(path)
            except UnicodeEncodeError:
                usable = False
            if not usable:
                raise UsageError(f"{name}={str(path)!r} is no path on this system.")
