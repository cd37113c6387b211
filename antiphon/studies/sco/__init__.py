"""Tachikawa and Takizawa, selective causal order: claims S1 to S7, table 1 and figures 4 to 8, as data.

`settings` says how the text is read, `judging` how claims are judged. The figures' curves are lost from our
copy of the paper; its sentences about them are what is compared. S8 and S9 are targets of our own.
"""

from typing import Final

from antiphon.studies.model import Study
from antiphon.studies.sco import beyond, evaluation, example, levels, schemes, theorem

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
