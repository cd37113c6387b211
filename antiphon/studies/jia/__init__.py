"""Jia and So, a multicast mechanism with ordering on overlapping groups: claims J1 to J6, as data.

`settings` says how the text was read, `judging` how claims are judged. The text measures nothing; what it
argues is run where that is possible, and worked out from the trees beyond.
"""

from typing import Final

from antiphon.studies.jia import burden, bypassing, changing, costs, living, orders, structure, trees
from antiphon.studies.model import Study

STUDY: Final = Study(
    name="jia",
    paper="Jia and So, A multicast mechanism with ordering on overlapping groups",
    title="One order across overlapping groups",
    grids=(*structure.GRIDS, orders.GRID, *bypassing.GRIDS, *costs.GRIDS, *changing.GRIDS, *living.GRIDS),
    sections=(
        trees.SECTION,
        bypassing.SECTION,
        costs.SECTION,
        changing.SECTION,
        burden.SECTION,
        living.SECTION,
    ),
)
