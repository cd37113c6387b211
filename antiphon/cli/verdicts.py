"""A verdict with its counts, as the audit and the campaigns print it."""

from collections.abc import Mapping

from rich.table import Table

from antiphon.check.verdict import Verdict
from antiphon.cli.console import data
from antiphon.core.recording import Property


def print_verdict(verdict: Verdict, counts: Mapping[str, int]) -> None:
    colour = {Verdict.PASS: "green", Verdict.FAIL: "red", Verdict.UNKNOWN: "yellow"}[verdict]
    data.print(f"[bold {colour}]{verdict.value}[/]", end="  ")
    data.print(", ".join(f"{name} {count:,}" for name, count in counts.items()))


def print_properties(
    violations: Mapping[Property, int],
    broken: Mapping[Property, int],
    heading: str,
    remarks: Mapping[Property, str] | None = None,
) -> None:
    """The violations of each property, under `heading` those that break promises, and remarks if any."""
    remarked = [""] if remarks else []
    table = Table("property", "violations", heading, *remarked, box=None, pad_edge=False)
    for name, count in violations.items():
        remark = [remarks.get(name, "")] if remarks else []
        style = "red" if broken[name] else ""
        table.add_row(name, f"{count:,}", f"{broken[name]:,}", *remark, style=style)
    data.print(table)
