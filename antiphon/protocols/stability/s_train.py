"""S_Train: in each sub-group of a tree a train goes along the siblings and up to their parent.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 4.3.2.
The root multicasts START. The first of a sub-group's siblings sends its counts to the second as an ACK1, that
one the least counts of both to the third, and so on; the last sends an ACK2 to the parent. A member with
children sends its ACK when it has the ACK2 of its last child, too. The root multicasts the result as INFO. A
round has bp+2 steps in a tree of height p with b children each, and no member handles more than five
messages.

Assumes and guarantees what S_CoordP does (`antiphon.protocols.stability.s_coordp`).

Deviations from the text, and why:
- Those of all the protocols (`antiphon.protocols.stability.base`, `numbered`), and S_CoordP's.
- In the text the train bypasses a crashed sibling, and the sub-group of a crashed parent reports to the
  grandparent. Here a member reports to the next sibling that it does not suspect, or else to the nearest such
  ancestor. A train that bypasses a sibling bypasses its sub-tree too, whose members report to the ancestor;
  ACKs name the members that they lack (`antiphon.protocols.stability.structured`).
"""

from collections.abc import Iterator
from typing import ClassVar, Final

from antiphon.core.ids import Site
from antiphon.protocols.stability.coordp import Information, StartRound
from antiphon.protocols.stability.hierarchy import NOBODY
from antiphon.protocols.stability.structured import Report, Structured


class SiblingReport(Report, frozen=True, gc=False):
    """ACK1, to the next sibling: the sub-trees of the sub-group's members up to the sender."""

    code: ClassVar[int] = 24


class SubgroupReport(Report, frozen=True, gc=False):
    """ACK2, to the parent: the sub-trees of all siblings."""

    code: ClassVar[int] = 25


PDUS: Final = (StartRound, SiblingReport, SubgroupReport, Information)


class STrain(Structured):
    """One member's part. Its owner reports what is held with `hold`, and forwards inputs and effects."""

    __slots__ = ()

    def _span(self, place: int) -> tuple[int, int]:
        """The sub-trees of the elder siblings, and our own."""
        parent = self._hierarchy.parent[place]
        return (place if parent == NOBODY else parent + 1), self._hierarchy.end(place)

    def _superiors(self) -> Iterator[int]:
        """The younger siblings, then the ancestors."""
        hierarchy, place = self._hierarchy, self._stand
        younger = hierarchy.end(place)
        while younger < len(hierarchy) and hierarchy.parent[younger] == hierarchy.parent[place]:
            yield younger
            younger = hierarchy.end(younger)
        yield from hierarchy.ancestors(place)

    def _reporters(self) -> Iterator[int]:
        elder = self._hierarchy.elder[self._stand]
        while elder != NOBODY and self._is_suspected(elder):
            elder = self._hierarchy.elder[elder]
        if elder != NOBODY:
            yield elder
        yield from self._last_children(self._stand)

    def _last_children(self, place: int) -> Iterator[int]:
        """The last child, and in the place of each suspected one its own last."""
        last = NOBODY
        for child in self._hierarchy.children(place):
            if self._is_suspected(child):
                yield from self._last_children(child)
            else:
                last = child
        if last != NOBODY:
            yield last

    def _excused(self, place: int) -> int:
        """The suspected member; if it is a sibling, its sub-tree too, which reports to an ancestor."""
        parent = self._hierarchy.parent
        if place < self._stand and parent[place] == parent[self._stand]:
            return self._bits(place, self._hierarchy.end(place))
        return self._bits(place, place + 1)

    def _report_kind(self, to: Site) -> type[Report]:
        parent = self._hierarchy.parent
        is_sibling = parent[self._place_of(to)] == parent[self._stand]
        return SiblingReport if is_sibling else SubgroupReport
