"""`antiphon simulate template`: best-effort multicast, the smallest scenario and the one to copy."""

from dataclasses import dataclass
from typing import Final

from antiphon.core.errors import UsageError
from antiphon.core.recording import Property, Recorder
from antiphon.protocols.template import Template, TemplateConfiguration
from antiphon.sim.ordering import OrderingConfiguration, Subject, simulate
from antiphon.sim.scenario import Metrics, Scenario

PROMISES: Final[tuple[Property, ...]] = ("integrity", "duplicate", "fifo")
SECONDS_PER_DELIVERY: Final = 1e-5


@dataclass(frozen=True, kw_only=True)
class Configuration(OrderingConfiguration):
    """The shared knobs; the template has none of its own worth turning."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.crashes:
            raise UsageError(
                "The template forgets what it delivered when it crashes, so it promises nothing across that.",
                hint="Leave crashes at 0, or simulate another protocol.",
            )


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    knobs = TemplateConfiguration(largest_batch=configuration.batch)
    subject = Subject(
        build=lambda site, members: Template(site, members, knobs),
        repairs=False,
        settle_ns=0,
        leader_crashes_alone=False,
    )
    return simulate(configuration, subject, seed, recorder)


SCENARIO: Final = Scenario(
    name="template",
    summary="Best-effort multicast, first in first out: the protocol to copy.",
    example="antiphon simulate template --members 5 --messages 200 --loss 0.1 --seed 1",
    configuration=Configuration,
    run=run,
    promises=PROMISES,
    audited=True,
    cost_s=lambda knobs: 0.01 + SECONDS_PER_DELIVERY * knobs.members * knobs.messages / knobs.batch,
)
