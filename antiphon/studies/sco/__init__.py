"""Tachikawa and Takizawa, selective causal order: claims S1 to S7, table 1 and figures 4 to 8, as data.

`settings` has our reading of the paper, `judging` the rules for claims, and `claims.md` the claims. The
figures' curves are lost from our copy of the paper; its sentences about them are compared. S8 and S9 are our
own targets.
"""

from typing import Final

from antiphon.studies.sco import beyond, evaluation, example, levels, schemes, theorem
from antiphon.studies.study import Study

STUDY: Final = Study(
    name="sco",
    paper="Tachikawa and Takizawa, Distributed protocol for selective intra-group communication",
    title="Causal order with a choice of destinations",
    grids=(theorem.GRID, example.GRID, *schemes.GRIDS, *levels.GRIDS, *beyond.GRIDS),
    sections=(
        evaluation.ROUNDS_SECTION,
        theorem.SECTION,
        example.SECTION,
        levels.SECTION,
        evaluation.SECTION,
        beyond.SECTION,
    ),
)
