"""`antiphon simulate PROTOCOL`: seeded runs; a command for each scenario, made from its data."""

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

from cyclopts import App, Parameter, validators

from antiphon.cli.console import data, print_json, run_bar, say
from antiphon.core.errors import UsageError
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.scenarios import find_scenario, scenario_names
from antiphon.simulation import SimulatedRun, measure, simulate_and_judge
from antiphon.trace.arrow import pa
from antiphon.trace.files import write_trace
from antiphon.trace.frames import safe_name
from antiphon.trace.levels import write_levels

ROWS_PER_FILE: Final = 500_000

COMMON_OPTIONS: Final = (
    ("seed", 0, Annotated[int, Parameter(help="seed of the run, or of the first run")]),
    (
        "runs",
        1,
        Annotated[
            int, Parameter(help="how many runs, with consecutive seeds", validator=validators.Number(gte=1))
        ],
    ),
    ("trace", None, Annotated[Path | None, Parameter(help="write the runs' trace into this folder")]),
    ("json", False, Annotated[bool, Parameter(help="print one JSON object per run", negative=())]),
)
"""Name, default and annotation of the options that every scenario's command has."""

app = App(
    name="simulate",
    help="Seeded runs of a protocol: the same seed gives the same run, everywhere.",
    help_epilogue="Example: antiphon simulate coordp --members 500 --json",
)


@app.default
def simulate_profile(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
) -> int:
    """Seeded runs of a protocol: the same seed gives the same run, everywhere.

    Without a protocol, `--profile NAME` names a system to simulate, with the options of `profile`.
    """
    if not tokens:
        app.help_print([])
        return 0
    if not any(token.partition("=")[0] == "--profile" for token in tokens):
        raise UsageError("Which protocol?", hint="Name it first, or a profile: --profile amoeba")
    code: int = app(
        ["profile", *tokens], exit_on_error=False, print_error=False, result_action="return_value"
    )
    return code


def simulate(
    scenario: Scenario, configuration: Any, seed: int, runs: int, trace: Path | None, json: bool
) -> int:
    """Do the runs, print their metrics and write their trace as they come."""
    sink = TraceSink(trace) if trace is not None else None
    try:
        with run_bar(scenario.name, runs) as bar:
            for index in range(runs):
                print_metrics(one_run(scenario, configuration, seed + index, sink), seed + index, json)
                bar(index + 1, (index + 1) / runs)
    finally:
        # Runs completed before an interruption are kept.
        if sink is not None:
            sink.flush()
    if trace is not None:
        say(f"The trace is in {trace}; judge it with: antiphon audit {trace}")
    return 0


def one_run(scenario: Scenario, configuration: Any, seed: int, sink: "TraceSink | None") -> Metrics:
    if sink is None:
        return measure(scenario, configuration, seed)
    run = simulate_and_judge(scenario, configuration, seed)
    sink.add(run)
    return run.metrics


class TraceSink:
    """Writes runs' traces in files of a reasonable size; an unwritable folder raises at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: list[SimulatedRun] = []
        write_trace(folder, [], [])

    def add(self, run: SimulatedRun) -> None:
        self._waiting.append(run)
        if sum(len(waiting.recorder) for waiting in self._waiting) >= ROWS_PER_FILE:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            table = pa.concat_tables([waiting.recorder.table() for waiting in self._waiting])
            runs = [waiting.run for waiting in self._waiting]
            calls = [call for waiting in self._waiting for call in waiting.recorder.calls]
            write_trace(self._folder, [table], runs, append=True, calls=calls)
            for waiting in self._waiting:
                if waiting.recorder.levels:
                    stem = safe_name(waiting.run.run)
                    write_levels(self._folder, stem, waiting.recorder.levels)
            self._waiting.clear()


def print_metrics(metrics: Metrics, seed: int, json: bool) -> None:
    if json:
        print_json({**metrics, "seed": seed})
        return
    data.print(f"seed {seed}", style="bold")
    width = max(map(len, metrics))
    for name, value in metrics.items():
        shown = f"{value:.6g}" if isinstance(value, float) else str(value)
        data.print(f"  {name:<{width}}  {shown}", markup=False)


def command_for(scenario: Scenario) -> Callable[..., int]:
    """A function whose signature has the scenario's parameters beside the common ones."""

    def command(**options: Any) -> int:
        common = {name: options.pop(name, default) for name, default, _ in COMMON_OPTIONS}
        return simulate(scenario, scenario.configure(options), **common)

    hints = get_type_hints(scenario.configuration)
    helps = scenario.knobs()
    own = [
        (field.name, field.default, Annotated[hints[field.name], Parameter(help=helps[field.name])])
        for field in dataclasses.fields(scenario.configuration)
    ]
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, default, annotation in (*own, *COMMON_OPTIONS)
    ]
    command.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = scenario.summary
    return command


def add(name: str) -> None:
    """A command for a scenario; `package.module:ATTRIBUTE` names one that is not in the list."""
    if name not in app:
        scenario = find_scenario(name)
        app.command(command_for(scenario), name=name, help_epilogue=f"Example: {scenario.example}")


for _name in scenario_names():
    add(_name)
