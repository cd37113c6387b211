"""The options that every live command shares."""

from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter

Name: TypeAlias = Annotated[
    str | None, Parameter(help="this member's name; the host's name and process id by default")
]
Order: TypeAlias = Annotated[str, Parameter(help="fifo, or sequencer (one total order)")]
Sequencer: TypeAlias = Annotated[str | None, Parameter(help="with --order sequencer: the member that orders")]
Repair: TypeAlias = Annotated[
    str, Parameter(help="how fifo makes up for losses: hybrid, acknowledge, request, request-all or any")
]
Network: TypeAlias = Annotated[
    str, Parameter(help="loopback, multicast:INTERFACE, or peers:HOST:PORT,HOST:PORT (docs/networks.md)")
]
Key: TypeAlias = Annotated[Path | None, Parameter(help="key file, made by antiphon keygen")]
Insecure: TypeAlias = Annotated[
    bool, Parameter(help="go beyond loopback without a key: anyone there may read and forge", negative="")
]
