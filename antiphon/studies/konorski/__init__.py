"""Konorski, membership-insensitive totally ordered multicast: claims K1 to K9 and figure 3, as data.

`settings` has our reading of the paper, `judging` the rules for claims, and `claims.md` the claims. The
figure's curves are lost from our copy of the paper; the numbers in its text are compared.
"""

from typing import Final

from antiphon.studies.konorski import lan, large, membership, observations, order, sharing
from antiphon.studies.study import Study

STUDY: Final = Study(
    name="konorski",
    paper="Konorski, Membership-insensitive totally ordered multicast",
    title="Total order that does not care who is there",
    grids=(
        observations.GRID,
        *lan.GRIDS,
        *membership.GRIDS,
        *sharing.GRIDS,
        *large.GRIDS,
        *order.GRIDS,
    ),
    sections=(
        sharing.SECTION,
        membership.SECTION,
        observations.SECTION,
        lan.SECTION,
        large.SECTION,
        order.SECTION,
    ),
)
