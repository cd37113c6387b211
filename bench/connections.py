"""What a small connection of a campaign costs: simulated, judged by the kernels, judged by the pure checkers.

Rerun: .venv/bin/python bench/connections.py [PROTOCOL …]
One process, processor time, the runs of `antiphon sweep connections` from seed 0 on; imports and the loading
of compiled kernels (about 0.7 s a worker) are left out.
"""

import sys
import time
from collections import defaultdict
from typing import Final

from antiphon.audit.judging import judge
from antiphon.audit.log import build_log
from antiphon.audit.recorder import PackingRecorder
from antiphon.check.checkers import check_trace
from antiphon.core.recording import PROPERTIES
from antiphon.sim.scenarios import find_scenario
from antiphon.simulation import run_row
from antiphon.studies.connections import DRAWINGS, drawing
from antiphon.trace.recorder import MemoryRecorder

RUNS: Final = 200
CHECKED: Final = 10
"""One in this many runs is judged by the pure checkers, too."""


class Stopwatch:
    """Adds up processor time by name."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._since = time.process_time()

    def lap(self, name: str) -> None:
        now = time.process_time()
        self.seconds[name] += now - self._since
        self._since = time.process_time()


def one_run(protocol: str, seed: int, watch: Stopwatch) -> None:
    scenario = find_scenario(protocol)
    configuration = scenario.configure(drawing(protocol)(seed))
    run = run_row(scenario, configuration, seed)
    recorder = PackingRecorder()
    watch.lap("left out")
    scenario.run(configuration, seed, recorder)
    watch.lap("simulate")
    judge(build_log(run, [recorder.segment()]), dict.fromkeys(PROPERTIES, 0))
    watch.lap("judge")
    if seed % CHECKED == 0:
        rows = MemoryRecorder(run.run)
        scenario.run(configuration, seed, rows)
        watch.lap("left out")
        check_trace(rows.events(), run)
        watch.lap("check")


def main() -> None:
    print(f"{'protocol':<16}{'simulate ms':>12}{'judge ms':>12}{'pure ms':>12}")
    for protocol in sys.argv[1:] or DRAWINGS:
        one_run(protocol, 0, Stopwatch())
        watch = Stopwatch()
        for seed in range(RUNS):
            one_run(protocol, seed, watch)
        each = {name: 1000 * seconds / RUNS for name, seconds in watch.seconds.items()}
        pure = CHECKED * each["check"]
        print(f"{protocol:<16}{each['simulate']:>12.2f}{each['judge']:>12.2f}{pure:>12.2f}")


if __name__ == "__main__":
    main()
