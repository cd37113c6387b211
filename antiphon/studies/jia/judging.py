"""How Jia and So's claims are judged.

- A number given by a formula holds if ours is within 10% of it. Ours may also be up to two messages lower:
  the paper also counts messages that a site sends to itself.
- 'Usually' means for more than half of the groups, at every kind and size that was run.
- 'Fewer' and 'shorter' hold if they hold, or nothing differs, at every kind and size; 'considerably' means
  by at least half.
- What is proved holds if there is no exception in all runs.
- A claim about many points names the worst of them.
"""

from typing import Final

from antiphon.studies.judging import is_near

SENT_TO_ITSELF: Final = 2.0
USUALLY: Final = 0.5


def costs(ours: float, theirs: float) -> bool:
    """Whether the number of messages fits a formula, except for those that a site sends to itself."""
    return is_near(ours, theirs) or theirs - SENT_TO_ITSELF <= ours <= theirs
