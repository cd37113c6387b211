"""What every protocol demands of the messages that an application hands in; misuse raises `UsageError`."""

from collections.abc import Sequence

from antiphon.core.errors import UsageError
from antiphon.core.inputs import Admit
from antiphon.core.packing import Packed, pack


def check_admission(event: Admit, *, started: bool, to_all: str | None = None) -> None:
    """Refuse an admission that no protocol can serve.

    `to_all` names a protocol that multicasts to its whole group; it refuses destinations.
    """
    if not started:
        raise UsageError("A member takes messages only after its start.")
    if type(event.bodies) is not Packed and not event.bodies:  # a packed batch is never empty
        raise UsageError("There is nothing to multicast: no body was handed in.")
    if to_all is not None and (event.destinations is not None or event.group is not None):
        raise UsageError(f"{to_all} multicasts to its whole group only.")


def pack_within(bodies: Sequence[bytes], largest_bytes: int) -> Packed:
    """The bodies as one batch, refused if it does not fit a PDU."""
    batch = pack(bodies)
    if len(batch.data) > largest_bytes:
        raise UsageError(
            f"A batch of {len(batch.data)} bytes does not fit a PDU.",
            hint=f"At most {largest_bytes} bytes do, lengths included; hand in less at once.",
        )
    return batch


def batch_for_all(event: Admit, protocol: str, largest_bytes: int, *, started: bool) -> Packed:
    """The batch that a protocol multicasts to its whole group."""
    check_admission(event, started=started, to_all=protocol)
    return pack_within(event.bodies, largest_bytes)
