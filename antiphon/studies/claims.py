"""The papers' claims as data: each paper's package holds a table, `claims.md`, with a row per claim."""

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files

from antiphon.studies.model import Claim, Finding
from antiphon.studies.results import Results

Judge = Callable[[Results], Finding]


@cache
def read_claims(paper: str) -> Mapping[str, Claim]:
    """A paper's claims by id, in the order of the table."""
    text = files(f"antiphon.studies.{paper}").joinpath("claims.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row] for row in rows[2:]]
    return {
        id_: Claim(id=id_, where=where, statement=statement, theirs=theirs)
        for id_, where, statement, theirs in cells
    }
