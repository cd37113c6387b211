"""What every part of one member shares: who it is, its knobs, its randomness, and where its effects go."""

from random import Random

from antiphon.core.effects import Effect
from antiphon.core.ids import Site
from antiphon.protocols.fifo.pdus import FifoConfiguration
from antiphon.protocols.timers import Timers


class Context:
    """Collects the effects of one input."""

    __slots__ = ("configuration", "counts", "effects", "incarnation", "random", "site", "timers")

    def __init__(self, site: Site, configuration: FifoConfiguration, random: Random) -> None:
        self.site = site
        self.incarnation = 0
        self.configuration = configuration
        self.random = random
        self.effects: list[Effect] = []
        self.timers = Timers(self.emit)
        self.counts = {
            "ignored": 0, "copies": 0, "asked": 0, "repaired": 0, "rounds": 0, "rejoined": 0,
            "refused": 0, "error_rounds": 0, "errors_found": 0, "history_messages": 0, "history_gaps": 0,
            "history_answers": 0, "history_switches": 0, "history_given_up": 0,
        }  # fmt: skip

    def ignore(self) -> None:
        """Count a peer's PDU that makes no sense, and is dropped."""
        self.counts["ignored"] += 1

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def take_effects(self) -> list[Effect]:
        """The effects since the last call."""
        effects, self.effects = self.effects, []
        return effects
