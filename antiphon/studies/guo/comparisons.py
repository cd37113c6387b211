"""The figures that sections 5.4 to 5.7 and appendices C and D repeat for each setting."""

from collections.abc import Sequence
from typing import Any, Final

from antiphon.studies.guo.settings import BASIC, HUES, NAMES, OTHER_HUE, SUBGROUPS, curves, points
from antiphon.studies.model import Curve, Figure, Panel

GROUP_SIZE: Final[dict[str, Any]] = {"x": "members", "x_label": "group size n"}
HOPS: Final[dict[str, Any]] = {**GROUP_SIZE, "y": "hop_messages", "y_label": "hop messages"}
TPR: Final[dict[str, Any]] = {**GROUP_SIZE, "y": "tpr_s", "y_label": "time per round (s)"}
MEAN_QUEUE: Final[dict[str, Any]] = {**GROUP_SIZE, "y": "queue_mean", "y_label": "messages waiting, mean"}
MOST_QUEUE: Final[dict[str, Any]] = {**GROUP_SIZE, "y": "queue_max", "y_label": "messages waiting, most"}

SETTINGS: Final = {
    ("dense", 50): "dense groups with 50 senders",
    ("sparse", 50): "sparse groups with 50 senders",
    ("dense", 1): "dense groups with one sender",
    ("sparse", 1): "sparse groups with one sender",
}

PAIRS: Final = (
    ("coordp", "s-coordp"),
    ("fulldist", "s-coordp"),
    ("train", "s-train"),
    ("gossip", "s-gossip"),
)


class Setting:
    """The figures of one density and number of senders."""

    def __init__(self, density: str, senders: int) -> None:
        self.density = density
        self.senders = senders
        self.name = SETTINGS[density, senders]

    def curves(self, *protocols: str) -> list[Curve]:
        return curves(protocols, self.density, self.senders)

    def subgroup_curves(self, subgroup: int, *protocols: str) -> list[Curve]:
        """The structured protocols with one sub-group size; S_Gossip's is always 50."""
        return [
            Curve(name=NAMES[protocol], where=self._of(protocol, subgroup), hue=HUES[protocol])
            for protocol in protocols
        ]

    def large_subgroups(self, *protocols: str) -> list[Curve]:
        """In dense groups, with logical trees of sub-groups of 50 in place of the network's."""
        large = {"tree": "subgroups", "subgroup": SUBGROUPS[-1]}
        return [
            Curve(
                name=NAMES[protocol],
                where=points(protocol, self.density, self.senders, **large),
                hue=HUES[protocol],
            )
            for protocol in protocols
        ]

    def _of(self, protocol: str, subgroup: int) -> dict[str, Any]:
        if protocol == "s-gossip":
            return points(protocol, self.density, self.senders)
        return points(protocol, self.density, self.senders, subgroup=subgroup)

    def basic_messages(self, id_: str) -> Figure:
        """Figures 5.12, 5.22, C.1, D.1; in detail means without FullDist, which dwarfs the others."""
        return Figure(
            id=id_,
            title=f"Messages on all hops: basic protocols, {self.name}",
            caption="Transmissions started on any link before the first member has the stability array.",
            panels=[
                Panel(title="four basic protocols", curves=self.curves(*BASIC), **HOPS),
                Panel(title="in detail", curves=self.curves("coordp", "train", "gossip"), **HOPS),
            ],
        )

    def structured_messages(self, id_: str) -> Figure:
        """Figures 5.13, C.2 in dense groups; 5.23, D.2 in sparse ones."""
        return self._structured(id_, "Messages on all hops", HOPS)

    def structured_times(self, id_: str) -> Figure:
        return self._structured(id_, "Time per round", TPR)

    def _structured(self, id_: str, what: str, axes: dict[str, Any]) -> Figure:
        if self.density == "dense":
            panels = [
                Panel(title="without S_Gossip", curves=self.curves("s-coordp", "s-train"), **axes),
                Panel(title="with S_Gossip", curves=self.curves("s-coordp", "s-train", "s-gossip"), **axes),
            ]
            caption = "The logical trees match the network; S_Gossip has local groups of 50."
        else:
            panels = self._by_subgroup(axes)
            caption = "The logical trees are drawn at random, without regard to the network."
        title = f"{what}: structured protocols, {self.name}"
        return Figure(id=id_, title=title, caption=caption, panels=panels)

    def _by_subgroup(self, axes: dict[str, Any]) -> list[Panel]:
        small, large = SUBGROUPS
        return [
            Panel(
                title=f"sub-group size {small}",
                curves=self.subgroup_curves(small, "s-coordp", "s-train"),
                **axes,
            ),
            Panel(
                title=f"sub-group size {large}",
                curves=self.subgroup_curves(large, "s-coordp", "s-train", "s-gossip"),
                **axes,
            ),
        ]

    def pairs(self, ids: Sequence[str], what: str, axes: dict[str, Any]) -> list[Figure]:
        """A basic protocol and its structured form, two pairs a figure (5.14-5.15, 5.20-5.21, ...)."""
        panels = [self._pair(basic, structured, axes) for basic, structured in PAIRS]
        return [
            Figure(
                id=id_,
                title=f"{what}: basic and structured, {self.name} (part {part})",
                caption="A basic protocol beside the structured one made of it.",
                panels=panels[first : first + 2],
            )
            for id_, part, first in zip(ids, ("I", "II"), (0, 2), strict=True)
        ]

    def _pair(self, basic: str, structured: str, axes: dict[str, Any]) -> Panel:
        drawn = self.curves(basic)
        if self.density == "dense" or structured == "s-gossip":
            drawn += self.curves(structured)
        else:
            drawn += [
                Curve(name=f"{NAMES[structured]}, {size}", where=self._of(structured, size), hue=hue)
                for size, hue in zip(SUBGROUPS, (HUES[structured], OTHER_HUE), strict=True)
            ]
        if basic == "fulldist" and axes is TPR:
            drawn.append(self.largest(HUES["gossip"]))
        return Panel(title=f"{NAMES[basic]} and {NAMES[structured]}", curves=drawn, **axes)

    def dense_queues(self, id_: str) -> Figure:
        """Figures 5.16 and C.5: mean and maximum for all seven."""
        return Figure(
            id=id_,
            title=f"Queues: all protocols, {self.name}",
            caption="The output link's queue at each enqueue; the text's may be the sum over a node's links.",
            panels=[
                Panel(title="mean queue", curves=self.curves(*NAMES), **MEAN_QUEUE),
                Panel(title="longest queue", curves=self.curves(*NAMES), **MOST_QUEUE),
            ],
        )

    def basic_queues(self, id_: str, axes: dict[str, Any]) -> Figure:
        """Figures 5.26, 5.28, D.5, D.7."""
        which = "Mean" if axes is MEAN_QUEUE else "Longest"
        return Figure(
            id=id_,
            title=f"{which} queue: basic protocols, {self.name}",
            caption="The output link's queue at each enqueue.",
            panels=[Panel(curves=self.curves(*BASIC), **axes)],
        )

    def structured_queues(self, id_: str, axes: dict[str, Any]) -> Figure:
        """Figures 5.27, 5.29, D.6, D.8."""
        which = "Mean" if axes is MEAN_QUEUE else "Longest"
        return Figure(
            id=id_,
            title=f"{which} queue: structured protocols, {self.name}",
            caption="The output link's queue at each enqueue; random logical trees.",
            panels=self._by_subgroup(axes),
        )

    def basic_times(self, id_: str) -> Figure:
        """Figures 5.17, 5.30, D.9: FullDist's first and last member to know."""
        return Figure(
            id=id_,
            title=f"Time per round: basic protocols, {self.name}",
            caption="From the trigger to the first member that has the stability array; FullDist's largest "
            "is that of the last member.",
            panels=[self.basic_times_panel()],
        )

    def largest(self, hue: int) -> Curve:
        """The last member to know in FullDist."""
        where = points("fulldist", self.density, self.senders)
        return Curve(name="FullDist, largest", where=where, y="tpr_last_s", hue=hue)

    def basic_times_panel(self, title: str = "") -> Panel:
        return Panel(title=title, curves=[*self.curves(*BASIC), self.largest(OTHER_HUE)], **TPR)

    def both_times(self, id_: str) -> Figure:
        """Figure C.6: basic and structured protocols side by side."""
        return Figure(
            id=id_,
            title=f"Time per round: {self.name}",
            caption="From the trigger to the first member that has the stability array.",
            panels=[
                self.basic_times_panel("four basic protocols"),
                Panel(
                    title="three structured protocols",
                    curves=self.curves("s-coordp", "s-train", "s-gossip"),
                    **TPR,
                ),
            ],
        )
