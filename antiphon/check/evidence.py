"""What a verdict rests on: a property judged by absent rows is unknown where such rows may be missing.

Some violations are shown by rows: a second delivery, two deliveries in the wrong order. Others are shown by
rows that are not there: no send, no delivery. Where a log has holes, or where no site logged a send, such an
absence proves nothing. Then the violation is not counted, and the property is `unknown`. A run with holes
cannot pass either, since what breaks a promise may be in the missing rows.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from antiphon.check.verdict import Verdict
from antiphon.core.ids import Site
from antiphon.core.recording import Property

NEEDS_SENDS: Final[frozenset[Property]] = frozenset(
    {"integrity", "atomicity", "causal", "causal-receipt", "stability", "safe"}
)
"""Properties that rest on send rows: the sender of a message, its time and its destinations. Other
properties are judged by deliveries alone."""


class Evidence(msgspec.Struct, frozen=True, gc=False):
    """What the rows of a run can show."""

    rows: bool
    """Whether the run has any rows."""
    messages: bool
    """Whether any site delivered a message, declared it stable or discarded it."""
    sends: bool
    """Whether any site logged a send."""
    holes: tuple[tuple[Site, int], ...] = ()
    """The sites whose logs have holes, in order of name, each with its first missing step."""

    @property
    def shows_unsent(self) -> bool:
        """Whether a message without a send row was not sent."""
        return self.sends and not self.holes

    def doubt(self, name: Property) -> str | None:
        """Why a property cannot pass, as a clause; None if nothing speaks against it."""
        if not self.rows:
            return "the run has no rows"
        if name in NEEDS_SENDS and self.messages and not self.sends:
            return "no site logged a send"
        if self.holes:
            site, step = self.holes[0]
            return f"step {step} is missing from the log of site {site}"
        return None

    def verdict(self, name: Property, violations: int) -> Verdict:
        """The verdict on one property of the run, promised or not."""
        if violations:
            return Verdict.FAIL
        return Verdict.PASS if self.doubt(name) is None else Verdict.UNKNOWN

    def doubts(self, counts: Mapping[Property, int]) -> dict[Property, str]:
        """The reason for each property that is unknown."""
        found = {name: self.doubt(name) for name, count in counts.items() if not count}
        return {name: reason for name, reason in found.items() if reason is not None}
