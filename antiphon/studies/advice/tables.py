"""The means of the advisor's sweep, and interpolation between them.

The file beside this module has, for each plan, its axes and each metric's means as plain numbers: seconds,
messages. Interpolation removes one axis after the other. Values are linear over the share of transmission,
the number of senders (by the messages' size) and the loss (by the repetitions it causes); over the group
size, the subset and the pace, their logarithms are linear in the axes' logarithms. Outside the grid the
lines of its last cell are continued.

In direct protocols loss adds the time of repetitions; in gossip it makes rounds longer by a factor. It
changes messages and queues by a factor in all protocols.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from math import log
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from antiphon.core.errors import InputError
from antiphon.studies.advice.plans import HEADER_BYTES, PLANS, Place, Plan

FloatArray = npt.NDArray[np.float64]

FILE: Final = "results.json"
TIMES: Final = ("tpr_s", "tpr_last_s")
QUEUES: Final = ("queue_mean", "queue_max")
METRICS: Final = (*TIMES, "hop_messages", *QUEUES)
FINISHED: Final = "finished"
CURVED: Final = ("subset", "pace", "members")
"""The axes along which logarithms are linear; they come last in a plan's axes."""
CURVED_BY_LOSS: Final = ("share", *CURVED)
"""The same for changes by loss: a wait before a repetition is a multiple of a message's time on a link."""


def cell(nodes: Sequence[float], place: float) -> tuple[int, float]:
    """The index of the node before a place, and how far the place is towards the next, as a share."""
    first = min(max(bisect_right(nodes, place) - 1, 0), len(nodes) - 2)
    return first, (place - nodes[first]) / (nodes[first + 1] - nodes[first])


def scaled(axis: str, place: float, curved: Sequence[str]) -> float:
    """A coordinate on the scale of its interpolation."""
    if axis == "senders":
        return log(HEADER_BYTES + 4 * place)
    return log(place) if axis in curved else place


def interpolate(
    values: FloatArray,
    axes: Mapping[str, Sequence[float]],
    place: Place,
    offset: float,
    curved: Sequence[str] = CURVED,
) -> float:
    """Interpolate along one axis after the other; `offset` is added to a value before its logarithm."""
    for axis, nodes in axes.items():
        scale = [scaled(axis, node, curved) for node in nodes]
        first, weight = cell(scale, scaled(axis, place[axis], curved))
        low, high = values[first], values[first + 1]
        if axis in curved:
            low, high = np.log(low + offset), np.log(high + offset)
            values = np.exp(low + weight * (high - low)) - offset
        else:
            values = low + weight * (high - low)
            # A line continued beyond the grid must not fall below zero.
            values = np.maximum(values, np.minimum(low, high) / 10)
    return float(values)


@dataclass(frozen=True)
class Learnt:
    """A plan's means, each metric as an array over the plan's axes."""

    plan: Plan
    base: Mapping[str, FloatArray]
    lossy: Mapping[str, FloatArray]

    def predict_time_s(self, place: Place) -> float:
        """The time per round alone, the most frequent request."""
        time = self._base("tpr_s", place)
        if place["loss"] > 0:
            time = self._with_loss("tpr_s", place, time)
        return time * self.plan.unit_s(place)

    def predict(self, place: Place) -> dict[str, float]:
        """Every metric at a place in the plan's coordinates, and the share of rounds that finishes."""
        found = {metric: self._base(metric, place) for metric in METRICS}
        found[FINISHED] = 1.0
        if place["loss"] > 0:
            found = {metric: self._with_loss(metric, place, found[metric]) for metric in METRICS}
            finished = interpolate(*self._at_loss(self.lossy[FINISHED], np.array(1.0), place), place, 0.0)
            found[FINISHED] = min(1.0, finished)
        # The last member never knows before the first, whatever the two lines predict.
        found["tpr_last_s"] = max(found["tpr_s"], found["tpr_last_s"])
        unit_s = self.plan.unit_s(place)
        return found | {metric: found[metric] * unit_s for metric in TIMES}

    def _base(self, metric: str, place: Place) -> float:
        return interpolate(self._without_unit[metric], self.plan.base, place, _offset(metric))

    @cached_property
    def _without_unit(self) -> dict[str, FloatArray]:
        """The means without loss, with times in the plan's units."""
        units = _over(self.plan.base, lambda place: self.plan.unit_s({**place, "loss": 0.0}))
        return {metric: values / units if metric in TIMES else values for metric, values in self.base.items()}

    @cached_property
    def _changes(self) -> dict[str, FloatArray]:
        """The change by loss, as a sum or a factor, at the points of the lossy grid."""
        units = _over(self.plan.lossy, lambda place: self.plan.unit_s({**self.plan.pinned, **place}))
        return {metric: self._change(metric, units) for metric in METRICS}

    def _change(self, metric: str, units: FloatArray) -> FloatArray:
        without = _over(self.plan.lossy, lambda place: self._base(metric, {**self.plan.pinned, **place}))
        values = self.lossy[metric] / units if metric in TIMES else self.lossy[metric]
        if self._adds(metric):
            return np.maximum(values - without, 0)
        return (values + _offset(metric)) / (without + _offset(metric))

    def _adds(self, metric: str) -> bool:
        return metric in TIMES and not self.plan.gossips

    def _with_loss(self, metric: str, place: Place, without: float) -> float:
        """A metric with loss, from its value without."""
        adds, offset = self._adds(metric), _offset(metric)
        neutral = np.array(0.0 if adds else 1.0)
        values, axes = self._at_loss(self._changes[metric], neutral, place)

        def change_at(share: float) -> float:
            near = {**place, "members": members, "share": share}
            return interpolate(values, axes, near, 1.0 if adds else 0.0, CURVED_BY_LOSS)

        # Beyond the sweep, with more members or faster links, the change by loss is that at the sweep's end:
        # the rate of premature repetitions cannot be extrapolated.
        members = min(max(place["members"], axes["members"][0]), axes["members"][-1])
        low, *_, high = axes.get("share", (0.0, 1.0))
        change = change_at(min(max(place["share"], low), high))
        if adds and place["share"] > high:
            # On slow links all waits are multiples of a message's time on a link: linear again.
            before = axes["share"][-2]
            slope = (change - change_at(before)) / (high - before)
            change += (place["share"] - high) * slope
        return without + change if adds else max(0.0, (without + offset) * change - offset)

    def _at_loss(
        self, values: FloatArray, neutral: FloatArray, place: Place
    ) -> tuple[FloatArray, dict[str, tuple[float, ...]]]:
        """Interpolate along the loss, whose coordinate depends on the group size; 0 is no loss."""
        plan = self.plan
        axes = {axis: nodes for axis, nodes in plan.lossy.items() if axis != "loss"}
        whole = np.concatenate([np.broadcast_to(neutral, (1, *values.shape[1:])), values])
        columns = []
        for index, members in enumerate(axes["members"]):
            nodes = [plan.repeats(members, loss) for loss in (0.0, *plan.lossy["loss"])]
            first, weight = cell(nodes, plan.repeats(members, place["loss"]))
            low, high = whole[first, ..., index], whole[first + 1, ..., index]
            columns.append(np.maximum(low + weight * (high - low), np.minimum(low, high) / 10))
        return np.stack(columns, axis=-1), axes


def _offset(metric: str) -> float:
    """Queues may be empty, so 1 is added before the logarithm."""
    return 1.0 if metric in QUEUES else 0.0


def _over(axes: Mapping[str, Sequence[float]], function: Callable[[dict[str, float]], float]) -> FloatArray:
    """A function's values at all points of a grid."""
    shape = [len(nodes) for nodes in axes.values()]
    found = np.empty(shape)
    for index in np.ndindex(*shape):
        found[index] = function(
            {axis: nodes[spot] for (axis, nodes), spot in zip(axes.items(), index, strict=True)}
        )
    return found


@lru_cache(maxsize=1)
def learnt() -> dict[str, Learnt]:
    """The tables that ship with the package, by plan."""
    return decode(json.loads(resources.files(__package__).joinpath(FILE).read_text()))


def decode(stored: Mapping[str, Any]) -> dict[str, Learnt]:
    """The tables of a file, without plans that it lacks or has with other axes."""
    return {
        plan.name: Learnt(
            plan,
            _arrays(stored[plan.name]["base"], plan.base),
            _arrays(stored[plan.name]["lossy"], plan.lossy),
        )
        for plan in PLANS
        if stored.get(plan.name, {}).get("axes") == axes_of(plan)
    }


def axes_of(plan: Plan) -> dict[str, Any]:
    """A plan's axes as the file has them."""
    found = {"base": plan.base, "lossy": plan.lossy, "pinned": plan.pinned}
    decoded: dict[str, Any] = json.loads(json.dumps(found))
    return decoded


def _arrays(
    metrics: Mapping[str, Sequence[float]], axes: Mapping[str, Sequence[float]]
) -> dict[str, FloatArray]:
    shape = [len(nodes) for nodes in axes.values()]
    try:
        return {name: np.array(values, dtype=np.float64).reshape(shape) for name, values in metrics.items()}
    except ValueError as error:
        raise InputError(
            "The advisor's table is incomplete.", hint="Create it again; docs/advisor.md says how."
        ) from error
