"""Guo, message stability detection: chapters 4 to 6 and appendices A to D, as data.

`STUDY` is all of it; `DENSE` is a part that takes a second, for a first look. `judging` has the rules for
claims, `readings` how they turn on the text, `settings` our reading of the paper, `grids` the runs, and
`claims.md` the claims.
"""

from typing import Final

from antiphon.studies.guo import (
    analysis,
    complexity,
    dense,
    detection,
    fixed,
    grids,
    one_sender,
    readings,
    shapes,
    sizes,
    sparse,
    stable_times,
    trigger,
)
from antiphon.studies.study import Study

PAPER: Final = "Guo, Scalable message stability detection protocols"

SECTIONS: Final = (
    analysis.SECTION,
    complexity.SECTION,
    shapes.SECTION,
    stable_times.SECTION,
    fixed.SECTION,
    sizes.SECTION,
    dense.SECTION,
    sparse.SECTION,
    one_sender.DENSE_SECTION,
    one_sender.SPARSE_SECTION,
    trigger.SECTION,
    detection.SECTION,
)

STUDY: Final = Study(
    name="guo",
    paper=PAPER,
    title="Message stability detection",
    grids=grids.GRIDS,
    sections=(readings.section(SECTIONS), *SECTIONS),
)

DENSE: Final = Study(
    name="guo-dense",
    paper=PAPER,
    title="Message stability detection in dense groups, a first look",
    grids=grids.all_dense((50,)),
    sections=(dense.SMALL_SECTION,),
)
