"""The example in docs/studies.md does what it says."""

import re
from pathlib import Path
from typing import Any

from antiphon.studies.reproduce import STUDIES, judge
from antiphon.studies.study import Study
from tests.studies.imagined import imagine

PAGE = Path(__file__).parents[2] / "docs" / "studies.md"


def test_the_example_is_a_study() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    study = names["STUDY"]
    assert isinstance(study, Study)
    assert (len(study.jobs("quick")), len(study.jobs("full"))) == (3, 60)
    for time_s, verdict in ((0.5, "reproduced"), (2.0, "not reproduced")):
        results = imagine(study, "quick", otherwise=time_s)
        assert [one.verdict for one in judge(study, results, "quick")] == [verdict]
        (line,) = study.figures[0].panels[0].drawn(results).series
        assert line.x == [10.0, 20.0, 40.0]


def test_the_page_tells_how_many_runs_each_study_has() -> None:
    rows = re.findall(
        r"^\| `([a-z-]+)` \|.*\| ([\d,]+)(?: / ([\d,]+))? \|", PAGE.read_text(encoding="utf-8"), re.M
    )
    told = {name: tuple(int(runs.replace(",", "")) for runs in counts if runs) for name, *counts in rows}
    for name, counts in told.items():
        study = STUDIES[name]
        assert counts == tuple(len(study.jobs(size)) for size in ("quick", "full"))[: len(counts)], name
