"""How Jia and So's claims are judged.

- A delay given by a formula holds if ours is within 10% of it, a number of messages if it is within half a
  message, so that n and n + 1 differ. If ours is up to two messages lower, it holds if the paper also counts
  messages that a site sends to itself, which our runs do not.
- 'Usually' means for more than half of the groups, at every kind and size that was run.
- 'Fewer' and 'shorter' hold if they hold, or nothing differs, at every kind and size; 'considerably' means
  by at least half.
- What is proved holds if there is no exception in all runs.
- A claim about many points names the worst of them.
"""

from typing import Final

SENT_TO_ITSELF: Final = 2.0
ITS_OWN: Final = "The paper counts what a site sends to itself, too."
CLOSE: Final = 0.5
"""Messages by which a measured mean may differ from a formula's."""
USUALLY: Final = 0.5


def costs(ours: float, theirs: float) -> bool:
    """Whether the number of messages fits a formula."""
    return abs(ours - theirs) < CLOSE


def costs_without_its_own(ours: float, theirs: float) -> bool:
    """Whether it fits but for messages that a site sends to itself."""
    return theirs - SENT_TO_ITSELF <= ours < theirs + CLOSE
