"""Gossip exactly as figures 4.5 and 4.6 of Guo's dissertation print it: only to show that it stops.

The comparison of bitmaps is the printed one: smaller or greater at every place at once.
"""

from dataclasses import dataclass, field


@dataclass
class LiteralGossip:
    """Member `own` of `size`. What it holds does not matter for where it stops, so it holds one message."""

    own: int
    size: int
    round: int = 0
    least: int = 1
    stable: int = 0
    heard: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._start_over()

    def gossip(self) -> tuple[int, tuple[int, ...], int, int]:
        return self.least, tuple(self.heard), self.stable, self.round

    def receive(self, message: tuple[int, tuple[int, ...], int, int]) -> None:
        least, heard, stable, number = message
        if number == self.round:
            self._same_round(least, heard)
            self.stable = max(self.stable, stable)
            if all(self.heard):
                self.stable = self.least
                self.round += 1
                self._start_over()
        elif number == self.round + 1:
            self.least, self.heard = least, list(heard)
            self.stable = max(self.stable, stable)
            self.round = number
            if all(self.heard):
                self.stable = max(self.stable, self.least)
                self.round += 1
                self._start_over()
        else:
            assert number < self.round, "the text says that this never happens"

    def _same_round(self, least: int, heard: tuple[int, ...]) -> None:
        if all(mine > theirs for mine, theirs in zip(self.heard, heard, strict=True)):
            return
        if all(mine < theirs for mine, theirs in zip(self.heard, heard, strict=True)):
            self.least, self.heard = least, list(heard)
            return
        self.least = min(self.least, least)
        self.heard = [max(mine, theirs) for mine, theirs in zip(self.heard, heard, strict=True)]

    def _start_over(self) -> None:
        self.least = 1
        self.heard = [int(place == self.own) for place in range(self.size)]
