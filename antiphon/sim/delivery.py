"""When simulated members deliver: at once in their order, or only what is stable."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from antiphon.core.errors import UsageError
from antiphon.core.protocol import LiveProtocol
from antiphon.core.recording import Property
from antiphon.protocols.atomic_delivery import DELIVER_WHEN, AtomicDelivery
from antiphon.sim.ordering import OrderingConfiguration


@dataclass(frozen=True, kw_only=True)
class DeliveryConfiguration(OrderingConfiguration):
    """The shared knobs of protocols whose members may hold messages back until they are stable."""

    deliver: Annotated[str, "ordered: as soon as the order allows; stable: once every destination has it"] = (
        "ordered"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.deliver not in DELIVER_WHEN:
            raise UsageError(
                f"Messages cannot be delivered '{self.deliver}'.", hint=f"Choose {' or '.join(DELIVER_WHEN)}."
            )

    def delivering(self, protocol: LiveProtocol, *, one_order: bool) -> LiveProtocol:
        """The protocol as the member runs it."""
        return AtomicDelivery(protocol, one_order=one_order) if self.deliver == "stable" else protocol


def promised(
    promises: tuple[Property, ...],
) -> Callable[[DeliveryConfiguration], tuple[Property, ...]]:
    """A protocol's promises under a configuration."""
    return lambda knobs: (*promises, "safe") if knobs.deliver == "stable" else promises
