"""S_CoordP: CoordP on a tree; each parent folds what its children hold, and the root multicasts the minima.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 4.3.1.
The root multicasts START. A leaf then sends its counts to its parent as an ACK; a member with children waits
for the ACKs of all of them and sends the least counts on; the root multicasts the result as INFO. A round has
p+2 steps in a tree of height p, and a member handles at most four messages more than it has children.

Assumes: a failure detector that reports crashes by Suspected and Restored, an owner that reports what is
held, and that all members know the same tree. Nothing is assumed of the network.
Guarantees: the root ends a round only when every member that it does not suspect is covered; a member
declares stable only what it holds itself and what all of those hold (checker: stability); what has been
declared is never taken back; a round that was triggered ends once PDUs get through and the crashed are
suspected.

Deviations from the text, and why:
- Those of all the protocols (`antiphon.protocols.stability.base`, `numbered`).
- The text connects a member whose parent crashes to its grandparent. Here it reports to the nearest ancestor
  that it does not suspect; and ACKs name the members that they lack, so that none is taken for granted while
  members suspect different members (`antiphon.protocols.stability.structured`).
- The text does not treat the root's crash: the next member in order takes its place in the tree.
- ACKs are repeated only until the result is known, at growing pauses, and a parent asks children again that
  have not reported. Without repetition a round sends what the text counts and nothing else.
- A member that learns of a round by an ACK does not wait for START.
"""

from collections.abc import Iterator
from typing import ClassVar, Final

from antiphon.core.ids import Site
from antiphon.protocols.stability.coordp import Information, StartRound
from antiphon.protocols.stability.structured import Report, Structured


class ChildReport(Report, frozen=True, gc=False):
    """ACK, to the parent: the sender's sub-tree."""

    code: ClassVar[int] = 22


PDUS: Final = (StartRound, ChildReport, Information)


class SCoordP(Structured):
    """One member's part. Its owner reports what is held with `hold`, and forwards inputs and effects."""

    __slots__ = ()

    def _span(self, place: int) -> tuple[int, int]:
        """The sub-tree."""
        return place, self._hierarchy.end(place)

    def _superiors(self) -> Iterator[int]:
        return self._hierarchy.ancestors(self._stand)

    def _reporters(self) -> Iterator[int]:
        return self._children(self._stand)

    def _children(self, place: int) -> Iterator[int]:
        """The children, and in the place of a suspected one its own."""
        for child in self._hierarchy.children(place):
            if self._is_suspected(child):
                yield from self._children(child)
            else:
                yield child

    def _excused(self, place: int) -> int:
        """Only the suspected member: its children report to us."""
        return self._bits(place, place + 1)

    def _report_kind(self, to: Site) -> type[Report]:  # noqa: ARG002
        return ChildReport
