"""The options that every live command shares. Those of the orders come from `antiphon.live.orders`."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import Parameter

from antiphon.core.knobs import Knob
from antiphon.live.orders import ORDERS
from antiphon.protocols.profiles import PROFILES

Name: TypeAlias = Annotated[
    str | None, Parameter(help="this member's name; the host's name and process id by default")
]
Order: TypeAlias = Annotated[
    str, Parameter(help="; ".join(f"{kind.name}: {kind.summary}" for kind in ORDERS.values()))
]
Profile: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="a system to be like, instead of an order and its options (docs/profiles.md): "
        + ", ".join(name for name, each in PROFILES.items() if each.order in ORDERS)
    ),
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


RateLimit: TypeAlias = Annotated[
    float | None,
    Parameter(help="bytes a second to each other member, at most; as many as the network takes by default"),
]


def describe(having: dict[str, Knob]) -> str:
    """One flag's help: the orders that have it, what it is, and its values."""
    knob = next(iter(having.values()))
    values = ", ".join(
        f"{choice} (the default)" if choice == knob.default else choice for choice in knob.choices
    )
    default = ""
    if type(knob.default) is int:
        numbers = ", ".join(f"{each.default:,} with {order}" for order, each in having.items())
        default = f"; {numbers} if left out"
    sentence = knob.sentence[0].lower() + knob.sentence[1:].rstrip(".")
    return f"with {' or '.join(having)}: {sentence}{default}" + (f"; {values}" if values else "")


def order_flags() -> Iterator[tuple[str, Any, Any]]:
    """A flag for each option of each order; None leaves it at its default."""
    names = dict.fromkeys(name for kind in ORDERS.values() for name in kind.knobs())
    for name in names:
        having = {kind.name: kind.knobs()[name] for kind in ORDERS.values() if name in kind.knobs()}
        knob = next(iter(having.values()))
        told = describe(having)
        if knob.kind is bool:
            negative = f"--no-{name.replace('_', '-')}" if knob.default else ""
            yield name, Annotated[bool | None, Parameter(help=told, negative=negative)], field(default=None)
        else:
            yield name, Annotated[knob.kind | None, Parameter(help=told)], field(default=None)


if TYPE_CHECKING:

    @dataclass
    class OrderFlags:
        """The values of the orders' flags."""

else:
    OrderFlags = make_dataclass("OrderFlags", order_flags(), kw_only=True, frozen=True)
    OrderFlags.__module__ = __name__  # without it, its fields do not become flags

Options: TypeAlias = Annotated[OrderFlags | None, Parameter(name="*")]
"""The orders' flags as flags of a command, without a prefix."""


def given(options: OrderFlags | None) -> dict[str, Any]:
    """The order's options that were given."""
    found = {} if options is None else asdict(options)
    return {name: value for name, value in found.items() if value is not None}
