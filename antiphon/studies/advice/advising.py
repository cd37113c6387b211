"""Which stability protocol to use, with which step, subset, sub-groups and trigger, and why not the others.

Every protocol is predicted for the setting from the sweep's tables (`tables`), gossip at its best step. A
protocol is fit if its rounds finish under the loss and some trigger never lets the buffer overflow. Of the
fit ones the fastest is advised; where several are about as fast, the one with the fewest messages.

A sender frees its buffer when it learns the round's result, so the trigger uses the time until the last
member has it, where the paper uses the first. Of the messages in the buffer when a round begins, the share
that was not lost can be freed: alpha is 1 - loss, as in chapter 6.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from antiphon.analysis.trigger import sound_threshold
from antiphon.core.errors import UsageError
from antiphon.core.time import from_seconds
from antiphon.studies.advice.plans import NETWORK_NODES, Plan
from antiphon.studies.advice.tables import FINISHED, Learnt, learnt

SUBSETS: Final = (1, 2, 3, 4)
"""The paper recommends 2, 3 or 4; 1 is cheapest."""
PACES: Final = tuple(0.6 * 1.04**place for place in range(37))
"""Steps to consider, in units of the least possible step: up to two and a half."""
AS_FAST: Final = 1.1
"""Up to this factor in time, protocols count as equally fast: predictions are not finer."""
NEAR_BEST: Final = 1.05
"""Of the steps whose rounds take up to this factor of the shortest, the longest is used: it costs least."""
SURE: Final = 0.99
"""Share of rounds that must finish for a protocol to survive a loss."""
MOST_MEMBERS: Final = 1_000_000
"""Predictions come from groups of hundreds; beyond this size they are meaningless."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The setting that advice is asked for."""

    members: int
    senders: int
    bandwidth: float
    """Bit/s that stability detection may use on each link, in each direction."""
    rate: float
    """Messages a second that each sender sends."""
    buffer: float
    """Messages of one sender that fit its buffer."""
    loss: float = 0.0
    density: str = "dense"

    def __post_init__(self) -> None:
        for wrong, sentence, hint in self._doubts():
            if wrong:
                raise UsageError(sentence, hint=hint)

    def _doubts(self) -> Iterator[tuple[bool, str, str]]:
        members, nodes = self.members, NETWORK_NODES
        yield members < 2, f"A group of {members} has nothing to detect.", "Take 2 members or more."
        yield members > MOST_MEMBERS, f"Nothing is known of {members:,} members.", "Take a million at most."
        yield self.senders < 1, f"{self.senders} senders have nothing to be detected.", "Take 1 or more."
        yield not 0 < self.bandwidth < math.inf, "That is no bandwidth.", "Take more than 0 bit/s."
        yield not 0 <= self.rate < math.inf, "That is no rate.", "Take 0 or more messages a second."
        yield not 1 <= self.buffer < math.inf, "A buffer holds at least one message.", "Take 1 or more."
        yield not 0 <= self.loss < 1, f"{self.loss:g} is no probability of loss.", "Take one below 1."
        known = self.density in ("dense", "sparse")
        yield not known, f"There is no density '{self.density}'.", "There are dense and sparse."
        outside = self.density == "sparse" and members > nodes
        sentence = f"{members} members do not fit the {nodes} nodes of a sparse group's network."
        yield outside, sentence, "Take fewer, or --density dense."


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A protocol with its knobs, and its predicted metrics."""

    protocol: str
    tpr_s: float
    """From the trigger until the first member has the result."""
    tpr_last_s: float
    """Until the last one has."""
    hop_messages: float
    queue_mean: float
    queue_max: float
    finished: float
    """Share of rounds that finish."""
    threshold: int | None
    """Messages in the buffer at which a round begins; None if the buffer overflows with any trigger."""
    buffer_needed: int
    """The smallest buffer that need not overflow."""
    step_s: float | None = None
    subset: int | None = None
    subgroup: int | None = None
    reason: str = ""
    """Why it was rejected; empty for the advised one."""

    @property
    def fit(self) -> bool:
        return self.threshold is not None and self.finished >= SURE

    @property
    def options(self) -> dict[str, Any]:
        """The options with which a group uses it, by the names that `antiphon.join` knows."""
        turned = {
            "step_ns": None if self.step_s is None else from_seconds(self.step_s),
            "subset": self.subset,
            "subgroup": self.subgroup,
        }
        return {"stability": self.protocol} | {
            name: value for name, value in turned.items() if value is not None
        }

    def shown(self) -> dict[str, Any]:
        """Ready for JSON, without the knobs that it does not have."""
        values = {
            "protocol": self.protocol,
            "step_s": self.step_s,
            "subset": self.subset,
            "subgroup": self.subgroup,
        }
        knobs = {name: value for name, value in values.items() if value is not None}
        predicted = {
            name: float(f"{getattr(self, name):.4g}")
            for name in ("tpr_s", "tpr_last_s", "hop_messages", "queue_mean", "queue_max", "finished")
        }
        reason = {"reason": self.reason} if self.reason else {}
        return {
            **knobs,
            **predicted,
            "trigger": self.threshold,
            "buffer_needed": self.buffer_needed,
            **reason,
        }


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The answer: the protocol to use, the rejected ones with their reasons, and caveats."""

    setting: Setting
    best: Candidate
    rejected: Sequence[Candidate]
    notes: Sequence[str]

    @property
    def feasible(self) -> bool:
        """Whether the advised protocol keeps up with the senders; if not, none does."""
        return self.best.fit


def advise(setting: Setting, known: Mapping[str, Learnt] | None = None) -> Advice:
    """Predict every protocol for a setting and choose one."""
    found = [candidate for plan in _plans(setting, known) for candidate in candidates(plan, setting)]
    assert found, "the shipped tables have at least one protocol of each density"
    fit = [candidate for candidate in found if candidate.fit]
    best = choose(fit) if fit else min(found, key=lambda other: (-other.finished, other.tpr_last_s))
    rejected = [replace(other, reason=_why(other, best, setting)) for other in found if other is not best]
    rejected.sort(key=lambda other: (not other.fit, other.tpr_s))
    return Advice(setting=setting, best=best, rejected=rejected, notes=_notes(setting, best, known))


def choose(fit: Sequence[Candidate]) -> Candidate:
    """Of those about as fast as the fastest, the one with the fewest messages."""
    fastest_s = min(candidate.tpr_s for candidate in fit)
    fast = [candidate for candidate in fit if candidate.tpr_s <= AS_FAST * fastest_s]
    return min(fast, key=lambda candidate: candidate.hop_messages)


def candidates(known: Learnt, setting: Setting) -> Iterator[Candidate]:
    """A plan's protocol as it suits the setting; gossip once for each subset."""
    if not known.plan.gossips:
        yield _candidate(known, setting, {})
        return
    for subset in SUBSETS:
        if subset < setting.members:
            yield _candidate(known, setting, {"subset": subset, "pace": _best_pace(known, setting, subset)})


def place_of(plan: Plan, setting: Setting) -> dict[str, float]:
    """A setting in a plan's coordinates."""
    return {
        "members": setting.members,
        "senders": setting.senders,
        "share": plan.share(setting.members, setting.senders, setting.bandwidth),
        "loss": setting.loss,
    }


def _best_pace(known: Learnt, setting: Setting, subset: int) -> float:
    place = place_of(known.plan, setting) | {"subset": subset}
    times_s = {pace: known.predict_time_s({**place, "pace": pace}) for pace in PACES}
    longest_s = NEAR_BEST * min(times_s.values())
    return max(pace for pace, time_s in times_s.items() if time_s <= longest_s)


def _candidate(known: Learnt, setting: Setting, knobs: Mapping[str, float]) -> Candidate:
    plan = known.plan
    place = {**place_of(plan, setting), **knobs}
    predicted = known.predict(place)
    released = 1 - setting.loss
    threshold = sound_threshold(setting.buffer, setting.rate, predicted["tpr_last_s"], released)
    needed = setting.rate * predicted["tpr_last_s"] * (1 + 1 / released)
    return Candidate(
        protocol=plan.protocol,
        tpr_s=predicted["tpr_s"],
        tpr_last_s=predicted["tpr_last_s"],
        hop_messages=predicted["hop_messages"],
        queue_mean=predicted["queue_mean"],
        queue_max=predicted["queue_max"],
        finished=predicted[FINISHED],
        threshold=None if threshold is None else max(1, math.floor(threshold)),
        buffer_needed=max(1, math.ceil(needed)),
        step_s=float(f"{knobs['pace'] * plan.unit_s(place):.3g}") if "pace" in knobs else None,
        subset=int(knobs["subset"]) if "subset" in knobs else None,
        subgroup=plan.subgroup,
    )


def _plans(setting: Setting, known: Mapping[str, Learnt] | None) -> list[Learnt]:
    plans = (learnt() if known is None else known).values()
    return [known for known in plans if known.plan.density == setting.density]


def _why(other: Candidate, best: Candidate, setting: Setting) -> str:
    """Why a candidate is not advised, in a few words."""
    if other.finished < SURE:
        return f"at that loss {1 - other.finished:.0%} of its rounds do not end within ten minutes"
    if other.threshold is None:
        return f"the buffer of {setting.buffer:g} overflows at that rate; it needs {other.buffer_needed}"
    if other.tpr_s > AS_FAST * best.tpr_s:
        return f"{other.tpr_s / best.tpr_s:.3g} times as slow"
    if other.hop_messages >= best.hop_messages:
        return f"about as fast, with {other.hop_messages / best.hop_messages:.3g} times the messages"
    return "about as fast"


def _notes(setting: Setting, best: Candidate, known: Mapping[str, Learnt] | None) -> list[str]:
    """Caveats: where the prediction extrapolates the sweep, and where no protocol fits."""
    notes = []
    plans = [learnt.plan for learnt in _plans(setting, known) if learnt.plan.protocol == best.protocol]
    sizes = [size for plan in plans for size in plan.base["members"]]
    losses = [loss for plan in plans for loss in plan.lossy["loss"]]
    lossy_sizes = [size for plan in plans for size in plan.lossy["members"]]
    if not min(sizes) <= setting.members <= max(sizes):
        notes.append(
            f"{setting.members} members extrapolates: {best.protocol} was swept from {min(sizes):g} to "
            f"{max(sizes):g}."
        )
    if setting.loss > max(losses):
        notes.append(f"A loss of {setting.loss:g} extrapolates: up to {max(losses):g} was swept.")
    elif setting.loss and setting.members > max(lossy_sizes):
        notes.append(f"What loss does was swept up to {max(lossy_sizes):g} members.")
    if not best.fit:
        notes.append(
            f"No protocol keeps up with {setting.rate:g} messages a second and a buffer of "
            f"{setting.buffer:g}: the fastest needs a buffer of {best.buffer_needed}."
        )
    return notes
