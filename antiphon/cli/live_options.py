"""The options that every live command shares."""

from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter

Name: TypeAlias = Annotated[
    str | None, Parameter(help="this member's name; the host's name and process id by default")
]
Order: TypeAlias = Annotated[
    str,
    Parameter(
        help="fifo, causal (nothing overtakes what it answers), total (one order, whoever comes and goes), "
        "sequencer (one member orders) or total-across (one order over several groups)"
    ),
]
Service: TypeAlias = Annotated[
    str | None,
    Parameter(help="what total stands on: sequencer (the default), bounded-delay or lan (docs/total.md)"),
]
Sequencer: TypeAlias = Annotated[str | None, Parameter(help="with --order sequencer: the member that orders")]
Repair: TypeAlias = Annotated[
    str, Parameter(help="how fifo makes up for losses: hybrid, acknowledge, request, request-all or any")
]
Stability: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="how fifo finds what all hold: coordp (the default), fulldist, train, gossip, "
        "gossip-adaptive, gossip-hops, s-coordp, s-train or s-gossip (docs/stability.md)"
    ),
]
Errors: TypeAlias = Annotated[
    str | None, Parameter(help="with fifo: a stability protocol by which members find what they have missed")
]
Trigger: TypeAlias = Annotated[
    str | None, Parameter(help="when fifo begins a round: timer (the default) or adaptive, by full buffers")
]
Piggyback: TypeAlias = Annotated[
    bool, Parameter(help="with fifo: let what members hold ride on messages, without rounds", negative="")
]
Detector: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="how fifo finds out who is gone: heartbeat (the default), polling or gossip "
        "(docs/failure-detection.md)"
    ),
]
Causal: TypeAlias = Annotated[
    bool, Parameter(help="with total-across: causal order across groups, too", negative="")
]
Bodies: TypeAlias = Annotated[
    str | None, Parameter(help="with total-across: how bodies travel, tree (the default) or direct")
]
Bypass: TypeAlias = Annotated[
    bool, Parameter(help="with total-across: shorter ways, any two groups in one order", negative="")
]
History: TypeAlias = Annotated[
    Path | None, Parameter(help="with fifo: folder in which to log deliveries for members that join later")
]
HistoryBytes: TypeAlias = Annotated[
    int, Parameter(help="how long that log may grow before its oldest part goes")
]
CatchUp: TypeAlias = Annotated[
    bool, Parameter(help="with fifo: first deliver what such logs still have", negative="")
]
Network: TypeAlias = Annotated[
    str, Parameter(help="loopback, multicast:INTERFACE, or peers:HOST:PORT,HOST:PORT (docs/networks.md)")
]
Key: TypeAlias = Annotated[Path | None, Parameter(help="key file, made by antiphon keygen")]
Insecure: TypeAlias = Annotated[
    bool, Parameter(help="go beyond loopback without a key: anyone there may read and forge", negative="")
]
