"""Jia and So, a multicast mechanism with ordering on overlapping groups: claims J1 to J6, as data.

`settings` has our reading of the paper, `judging` the rules for claims, and `claims.md` the claims. The paper
measures nothing; its arguments are run where possible, and computed from the trees beyond that.
"""

from typing import Final

from antiphon.studies.jia import burden, bypassing, changing, costs, joining, living, orders, structure, trees
from antiphon.studies.study import Study

STUDY: Final = Study(
    name="jia",
    paper="Jia and So, A multicast mechanism with ordering on overlapping groups",
    title="One order across overlapping groups",
    grids=(
        *structure.GRIDS,
        orders.GRID,
        *bypassing.GRIDS,
        *costs.GRIDS,
        *changing.GRIDS,
        *living.GRIDS,
        *joining.GRIDS,
    ),
    sections=(
        trees.SECTION,
        bypassing.SECTION,
        costs.SECTION,
        changing.SECTION,
        burden.SECTION,
        living.SECTION,
        joining.SECTION,
    ),
)
