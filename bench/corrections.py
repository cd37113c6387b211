"""What each correction of the DPG protocol buys: simulated runs as published, and with corrections.

Seven sites on the paper's Ethernet, 40% of it offered in messages of 1000 bytes, 2% of all receptions missed.
Each row is the sum or the mean over the same seeds. Out of order are messages that some member delivered
against the order of the member that delivered most; missing are messages that a member lacks which stayed.
"""

import argparse
from statistics import mean
from typing import Any

from antiphon.protocols.dpg.pdus import CORRECTIONS
from antiphon.sim.scenarios import dpg

LOAD: dict[str, Any] = {"members": 7, "messages": 1500, "rate": 500.0, "size": 1000, "loss": 0.02}


def row(name: str, knobs: dict[str, Any], seeds: int) -> str:
    configuration = dpg.Configuration(**LOAD, **knobs)
    runs = [dpg.run(configuration, seed, None) for seed in range(1, seeds + 1)]

    def total(figure: str) -> str:
        return f"{sum(int(run[figure] or 0) for run in runs):,}"

    throughput = mean(float(run["busy_throughput"] or 0) for run in runs)
    share = mean(float(run["report_share"] or 0) for run in runs)
    return (
        f"| {name} | {total('out_of_order')} | {total('missing')} | {total('committed')} | "
        f"{throughput:.0f} | {share:.0%} | {sum(bool(run['finished']) for run in runs)} of {seeds} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    seeds = parser.parse_args().seeds
    print("| | out of order | missing | places chosen by tag | delivered a second | reports | finished |")
    print("|---|---|---|---|---|---|---|")
    print(row("as published", {"as_printed": True}, seeds), flush=True)
    for name in CORRECTIONS:
        print(row(f"and `{name}`", {"as_printed": True, "correct": name}, seeds), flush=True)
    for name in CORRECTIONS:
        others = ",".join(each for each in CORRECTIONS if each != name)
        print(row(f"all but `{name}`", {"as_printed": True, "correct": others}, seeds), flush=True)
    print(row("all", {}, seeds), flush=True)


if __name__ == "__main__":
    main()
