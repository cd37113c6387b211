"""Limits of one member: how much it may hold, how long it waits, and what it may be called."""

from dataclasses import dataclass, fields
from typing import Final
from unicodedata import is_normalized, normalize

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.knobs import LARGEST

LONGEST_NAME_BYTES: Final = 64
LEAST_RATE_BYTES_S: Final = 32_000


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one member may hold, and how long it waits."""

    queue_bytes: int = 64 << 20
    """Delivered bytes that wait for the application. Raising it costs memory when it reads slowly."""
    outgoing_bytes: int = 1 << 20
    """Bytes that wait to be admitted before `send` waits. Raising it costs latency under load."""
    patience_s: float = 2.0
    """How long a slow application may hold up the group. Raising it costs all members' time."""
    linger_s: float = 5.0
    """How long a leave waits for the member's own messages to be stable. Raising it costs time at the end."""
    join_s: float = 10.0
    """How long a join may take. Raising it costs time until a failed join is reported."""
    rate_bytes_s: float | None = None
    """Bytes per second to each other member, at most; None lets the congestion control decide. Raising it
    costs others on the link."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            is_open = value is None and each.default is None
            if not is_open and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise UsageError(f"{each.name}={value!r} is no number.")
            if isinstance(value, int) and value > LARGEST:
                raise UsageError(f"{each.name}={value!r} is too large.", hint=f"It is at most {LARGEST:,}.")
        # Negated, so that NaN is refused, too.
        if not (self.queue_bytes >= 1 and self.outgoing_bytes >= 1):
            raise UsageError("A queue holds at least one byte.")
        if not (self.patience_s >= 0 and self.linger_s >= 0 and self.join_s > 0):
            raise UsageError("A time to wait cannot be negative.")
        if self.rate_bytes_s is not None and not self.rate_bytes_s >= LEAST_RATE_BYTES_S:
            raise UsageError(
                f"A member sends {LEAST_RATE_BYTES_S:,} bytes a second at least.",
                hint="Leave `rate_bytes_s` out to send as fast as the network takes it.",
            )


def is_name(name: str) -> bool:
    """Whether this is a valid name of a member."""
    return " " not in name and _is_readable(name) and 0 < len(name.encode()) <= LONGEST_NAME_BYTES


def _is_readable(name: str) -> bool:
    """Whether a name can be encoded, and no other name looks the same for being composed otherwise."""
    # Only printable names can be encoded for sure.
    return name.isprintable() and is_normalized("NFC", name)


def _hint(name: str, usual: str) -> str:
    if not is_normalized("NFC", name):
        return f"Write it with composed characters (Unicode's form NFC): {normalize('NFC', name)!r}."
    return usual


def require_name(name: str) -> Site:
    """Validate a member's name. It stands in every datagram and, in `antiphon node`, between spaces."""
    if not isinstance(name, str) or not is_name(name):
        hint = _hint(str(name), f"Use 1 to {LONGEST_NAME_BYTES} printable characters without spaces.")
        raise UsageError(f"{name!r} is no name for a member.", hint=hint)
    return name


def require_group_name(name: Group) -> None:
    """Validate a group's name."""
    if not isinstance(name, str) or not name or not _is_readable(name):
        hint = _hint(str(name), "Use printable characters.")
        raise UsageError(f"{name!r} is no name for a group.", hint=hint)


def require_short_group_name(name: Group) -> None:
    """Validate the name of one of several groups: it stands in every message."""
    require_group_name(name)
    if len(name.encode()) > LONGEST_NAME_BYTES:
        hint = f"Use 1 to {LONGEST_NAME_BYTES} bytes of printable characters."
        raise UsageError(f"{name!r} is no name for a group.", hint=hint)
