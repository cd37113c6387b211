"""The README's picture: two members that deliver two messages in opposite orders.

`python -m antiphon.report.picture docs/picture.svg` writes it; a test checks that the file is up to date.
"""

import sys
from pathlib import Path

from antiphon.check.verdict import Violation, Witness
from antiphon.core.recording import Kind
from antiphon.report.diagram import layout
from antiphon.report.svg import to_svg
from antiphon.trace.schema import Event

LOGS: tuple[tuple[str, tuple[tuple[Kind, str, int], ...]], ...] = (
    ("alto", (("send", "alto", 0), ("deliver", "alto", 0), ("deliver", "tenor", 0))),
    ("bass", (("deliver", "alto", 0), ("deliver", "tenor", 0))),
    ("soprano", (("deliver", "tenor", 0), ("deliver", "alto", 0))),
    ("tenor", (("send", "tenor", 0), ("deliver", "alto", 0), ("deliver", "tenor", 0))),
)


def picture() -> str:
    """A space-time diagram of a total-order violation, small enough for a README."""
    events = [
        Event("a rehearsal", site, step, kind, sender, number)
        for site, log in LOGS
        for step, (kind, sender, number) in enumerate(log)
    ]
    violation = Violation(
        "total",
        "a rehearsal",
        None,
        "alto",
        0,
        "Let bass deliver alto:0 before tenor:0. Soprano delivers tenor:0 before alto:0. "
        "So alto:0 would come before itself: a contradiction.",
        (
            Witness("bass", 0, "alto", 0),
            Witness("bass", 1, "tenor", 0),
            Witness("soprano", 0, "tenor", 0),
            Witness("soprano", 1, "alto", 0),
        ),
    )
    return to_svg(layout(events, violation, context=0))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(), encoding="utf-8")
