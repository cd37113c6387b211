"""The matrix of readings and claims: which claim holds under which reading of the text."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from antiphon.studies.model import Claim, Section, Table
from antiphon.studies.results import Results

TEXT: Final = (
    "The text can be read in several ways where a verdict turns on it. Every such reading was run. A claim "
    "that holds under all of them is reproduced, under some of them 'reproduced, if', under none not "
    "reproduced. 'Fitted' marks a parameter that was chosen so that the claim holds: that is no evidence, so "
    "it does not count."
)


def section(sections: Sequence[Section]) -> Section:
    """A section about the claims of others."""
    claims = [claim for each in sections for claim in each.claims]
    return Section(
        title="Readings",
        text=TEXT,
        tables=(
            Table(
                title="Readings and claims",
                caption="A row for each claim with several readings, a column for each reading; empty where "
                "the claim does not turn on it.",
                columns=("claim", "verdict", *names(claims)),
                compute=rows(claims),
            ),
            Table(
                title="What each reading gives",
                caption="The readings with their figures.",
                columns=("claim", "reading", "theirs", "ours", ""),
                compute=lambda results: list(_figures(claims, results)),
            ),
        ),
    )


def names(claims: Sequence[Claim]) -> list[str]:
    """All readings, in the order of the claims; they do not depend on the runs."""
    found = (reading.name for claim in with_readings(claims, Results([])) for reading in claim.readings)
    return list(dict.fromkeys(found))


def with_readings(claims: Sequence[Claim], results: Results) -> list[Claim]:
    judged = [claim.judged(results) for claim in claims]
    return [claim for claim in judged if claim.readings]


def rows(claims: Sequence[Claim]) -> Callable[[Results], list[list[str]]]:
    def compute(results: Results) -> list[list[str]]:
        found = []
        for claim in with_readings(claims, results):
            words = {reading.name: reading.verdict for reading in claim.readings}
            found.append([claim.id, claim.verdict, *(words.get(name, "") for name in names(claims))])
        return found

    return compute


def _figures(claims: Sequence[Claim], results: Results) -> Iterator[list[str]]:
    for claim in with_readings(claims, results):
        for reading in claim.readings:
            yield [claim.id, reading.name, claim.theirs, reading.finding.ours, reading.verdict]
