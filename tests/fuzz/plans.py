"""What one run of the fuzzer does, drawn from its seed: how a group is made, and who lies how."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any, Final

from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.live.orders import DEFAULT_SERVICE, NO_HISTORY, ORDERS, REPAIRS, Order, make_order
from antiphon.protocols import detection, stability
from antiphon.protocols.dpg.services import SERVICES
from antiphon.protocols.fifo import HistoryRole
from antiphon.protocols.fifo.pdus import TRIGGERS

ORDER_NAMES: Final = tuple(ORDERS)
SERVICE_NAMES: Final = tuple(SERVICES)

STRANGER: Final = "stranger"
"""Never takes part, and sends nonsense under one name."""
CROWD: Final = "crowd"
"""The same under very many names."""
MEMBER: Final = "member"
"""Takes part, and sends nonsense beside what its protocol says."""
MISTAKEN: Final = "mistaken"
"""Takes part; some of what its protocol says goes out altered."""
VERSION: Final = "version"
"""Takes part as a later version: fields are added, and kinds of PDUs that are not known here."""
STALE: Final = "stale"
"""Takes part, and repeats what was said before, by itself and by others."""
LIARS: Final = {MEMBER: 35, MISTAKEN: 25, STRANGER: 12, CROWD: 10, VERSION: 8, STALE: 10}
"""The kinds of liars, and how many of a hundred runs each gets."""
USUAL_PDUS: Final = (60, 250, 1000, 1000, 2500)
"""PDUs of a liar in one run. Few let a group recover from one lie; many fill tables."""
FLOOD_PDUS: Final = 20_000
FLOODS: Final = 0.03
"""The share of runs that are floods."""
CROWD_FLOODS: Final = 0.1
"""The same of a crowd's runs: only floods fill tables of names."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The parameters of one run."""

    order: str
    seed: int
    service: str = DEFAULT_SERVICE
    honest: int = 3
    liar: str = MEMBER
    pdus: int = 250
    span_ms: int = 300
    """How long the liar lies."""
    share: float = 0.2
    """Of what a mistaken member says, this share is altered."""
    restarts: int = 0
    """How often a liar that takes part begins anew meanwhile."""
    crashes: bool = False
    """Whether an honest member, not the one that orders, crashes and restarts while the liar lies."""
    returns: bool = False
    """Whether in the end a process with the liar's name joins that is honest."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the order, beside the service."""
    history: HistoryRole = NO_HISTORY

    @property
    def sites(self) -> tuple[Site, ...]:
        """The honest members; the first orders, where one member does."""
        return tuple(f"m{index}" for index in range(self.honest))

    @property
    def made(self) -> Order:
        """The order as live groups have it."""
        needed = {"total": {"service": self.service}, "sequencer": {"sequencer": self.sites[0]}}
        return make_order(self.order, {**self.options, **needed.get(self.order, {})})

    @property
    def takes_part(self) -> bool:
        """Whether the liar runs a protocol object of its own."""
        return self.liar not in (STRANGER, CROWD)

    def told(self) -> dict[str, Any]:
        """What was drawn, for a reader."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**plain, "history": self.history._asdict()}

    def command(self) -> str:
        """It replays the run."""
        service = f" --service {self.service}" if self.order == "total" else ""
        return f"python -m tests.fuzz --order {self.order}{service} --seed {self.seed}"


def draw_plan(order: str, seed: int, service: str | None = None, *, most_pdus: int | None = None) -> Plan:
    """The run of that seed; the service is drawn too, unless it is given."""
    random = Random(f"plan/{order}/{seed}")
    drawn = random.choice(SERVICE_NAMES)
    liar = random.choices(list(LIARS), list(LIARS.values()))[0]
    floods = CROWD_FLOODS if liar == CROWD else FLOODS
    pdus = FLOOD_PDUS if random.random() < floods else random.choice(USUAL_PDUS)
    plan: dict[str, Any] = {
        "order": order,
        "seed": seed,
        "service": (service or drawn) if order == "total" else DEFAULT_SERVICE,
        "honest": random.choice((3, 3, 4, 5)),
        "liar": liar,
        "pdus": pdus if most_pdus is None else min(pdus, most_pdus),
        "span_ms": random.choice((50, 300, 300, 1000)),
        "share": random.choice((0.02, 0.1, 0.3, 1.0)),
        "restarts": random.choice((0, 0, 0, 1, 2)),
        "crashes": random.random() < 0.2,
        "returns": random.random() < 0.3,
    }
    if order == "fifo":
        plan |= _draw_fifo(random)
    if order == "total-across":
        plan["options"] = {
            "causal": random.random() < 0.3,
            "bodies": random.choice((None, "tree", "direct")),
            "bypass": random.random() < 0.2,
        }
    return Plan(**plan)


def _draw_fifo(random: Random) -> dict[str, Any]:
    """Ways to repair, to find out what is stable and who is gone that go together; often the usual ones."""
    history = random.choice((NO_HISTORY, NO_HISTORY, HistoryRole(True, True)))
    repair = random.choice(REPAIRS) if random.random() < 0.6 else "hybrid"
    names = (None, *stability.PROTOCOLS)
    while True:
        options = {
            "repair": repair,
            "stability": random.choice(names) if random.random() < 0.6 else None,
            "errors": random.choice(names) if random.random() < 0.2 else None,
            "trigger": random.choice(TRIGGERS) if random.random() < 0.3 else None,
            "piggyback": random.random() < 0.15,
            "detector": random.choice((None, *detection.DETECTORS)),
        }
        with contextlib.suppress(UsageError):
            make_order("fifo", options)
            return {"options": options, "history": history}
