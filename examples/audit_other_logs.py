"""Judge the delivery logs of another system: an adapter is a small parser.

The log of this made-up broker has a line per event: process, what happened, message. Lines of one process
stand in the order in which things happened there. The adapter turns them into a trace, which the checkers
judge here and `antiphon audit DIR` judges on Spark.

Run it with: python examples/audit_other_logs.py [DIR]
"""

import sys
from collections import Counter
from pathlib import Path

from antiphon.check.checkers import check_trace
from antiphon.core.recording import PROPERTIES
from antiphon.trace.files import write_trace
from antiphon.trace.schema import Event, Run

LOG = """\
alice   published  alice/0
bob     got        alice/0
bob     published  bob/0
carol   got        bob/0
carol   got        alice/0
alice   got        alice/0
alice   got        bob/0
bob     got        bob/0
"""


def parse(log: str) -> list[Event]:
    """One event a line; a process's lines are its steps."""
    steps: Counter[str] = Counter()
    events = []
    for line in log.splitlines():
        process, what, message = line.split()
        sender, number = message.split("/")
        kind = "send" if what == "published" else "deliver"
        events.append(Event("broker", process, steps[process], kind, sender, int(number)))  # type: ignore[arg-type]
        steps[process] += 1
    return events


events = parse(LOG)
run = Run("broker", protocol="some broker", promises=("causal", "total"))
for violation in check_trace(events, run, PROPERTIES):
    print(f"{violation.property}: {violation.explanation}")

if len(sys.argv) > 1:
    write_trace(Path(sys.argv[1]), [events], [run])
    print(f"Now try: antiphon audit {sys.argv[1]}")
