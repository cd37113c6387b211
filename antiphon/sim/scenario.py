"""A scenario: one kind of run that the simulator can do, described so that the command line, the sweeps and
the studies all use it alike.

A configuration is a frozen dataclass with a default for every field; a field's annotation carries its help
(`members: Annotated[int, "members of the group"] = 50`). Its `__post_init__` raises `UsageError` for values
that make no sense. What `run` returns are plain numbers, booleans, strings or None, ready for JSON.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, get_type_hints

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.knobs import METADATA
from antiphon.core.recording import Property, Recorder

Metric = int | float | bool | str | None
Metrics = dict[str, Metric]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scenario:
    """One name of `antiphon simulate`."""

    name: str
    summary: str
    example: str
    configuration: type[Any]
    run: Callable[[Any, int, Recorder | None], Metrics]
    """Simulate one run: configuration, seed, and where to write the trace, if anywhere."""
    promises: tuple[Property, ...]
    """The promises, unless its knobs change them."""
    cost_s: Callable[[Any], float]
    """Roughly how long a run takes, so that sweeps can group short runs and start long ones first."""
    audited: bool = False
    """Whether a run is judged by the checkers, for the metric `violations`."""
    promised: Callable[[Any], tuple[Property, ...]] | None = None
    """The promises under a configuration, where they depend on it."""
    groups: Callable[[Any], Mapping[Group, tuple[Site, ...]] | None] = lambda _: None
    """The members of each group, for the trace; None when every site is in every group."""
    almost: tuple[Property, ...] = ()
    """Promises that hold almost always, and whose violations members report: `disagreements`,
    `unavailable`, `forks`."""
    almost_in: Callable[[Any], tuple[Property, ...]] | None = None
    """The same for a configuration, where it depends on that."""

    def promises_for(self, configuration: Any) -> tuple[Property, ...]:
        return self.promises if self.promised is None else self.promised(configuration)

    def almost_for(self, configuration: Any) -> tuple[Property, ...]:
        """The promises of which members may report that they did not hold."""
        return self.almost if self.almost_in is None else self.almost_in(configuration)

    def is_reported(self, broken: Collection[Property], metrics: Metrics, configuration: Any = None) -> bool:
        """Whether something is broken, but nothing that may not be, and members themselves found out."""
        found = any(metrics.get(name) for name in ("disagreements", "unavailable", "forks"))
        found = found and not metrics.get("unnoticed")
        return bool(broken) and found and set(broken) <= set(self.almost_for(configuration))

    def configure(self, parameters: Mapping[str, Any]) -> Any:
        """A configuration from named values; unknown names are the caller's mistake."""
        known = {field.name for field in dataclasses.fields(self.configuration)}
        for name in parameters:
            if name not in known:
                raise UsageError(
                    f"The scenario '{self.name}' has no parameter '{name}'.",
                    hint=f"It knows: {', '.join(sorted(known))}.",
                )
        return self.configuration(**parameters)

    def replay_command(self, configuration: Any, seed: int) -> str:
        """The command that repeats a run; values that are the defaults are left out."""
        fields = dataclasses.fields(configuration)
        values = {field.name: getattr(configuration, field.name) for field in fields}
        changed = {field.name: values[field.name] for field in fields if values[field.name] != field.default}
        return replay_command(self.name, changed, seed)

    def knobs(self) -> dict[str, str]:
        """Each parameter's name and help sentence."""
        hints = get_type_hints(self.configuration, include_extras=True)
        return {
            field.name: " ".join(getattr(hints[field.name], "__metadata__", _declared(field)))
            for field in dataclasses.fields(self.configuration)
        }


def _declared(field: "dataclasses.Field[Any]") -> tuple[str, ...]:
    """The sentence of a knob that the scenario shares with live groups."""
    return (field.metadata[METADATA]["sentence"],) if METADATA in field.metadata else ()


def replay_command(scenario: str, parameters: Mapping[str, Any], seed: int) -> str:
    """The command that does one run with these parameters."""
    options = [_option(name.replace("_", "-"), value) for name, value in parameters.items()]
    return " ".join(["antiphon simulate", scenario, *options, f"--seed {seed}"])


def _option(name: str, value: Any) -> str:
    """As the command line takes it: a knob that is on or off has no value."""
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name} {value}"
