"""What every total order asks of the bodies that an application hands in."""

from antiphon.core.errors import UsageError
from antiphon.core.inputs import Admit
from antiphon.core.packing import Packed, pack


def batch_to_order(event: Admit, order: str, largest_bytes: int, *, started: bool) -> Packed:
    """The batch that is to be ordered, if it makes sense; misuse is told in the name of the `order`."""
    if not started:
        raise UsageError("A member takes messages only after its start.")
    if type(event.bodies) is not Packed and not event.bodies:  # what is packed has a body at least
        raise UsageError("There is nothing to multicast: no body was handed in.")
    if event.destinations is not None or event.group is not None:
        raise UsageError(f"{order} orders messages to its whole group only.")
    batch = pack(event.bodies)
    if len(batch.data) > largest_bytes:
        raise UsageError(
            f"A batch of {len(batch.data)} bytes does not fit a PDU.",
            hint=f"At most {largest_bytes} bytes do, lengths included; hand in less at once.",
        )
    return batch
