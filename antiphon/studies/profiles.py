"""The systems of Guo's chapters 2 and 4 beside one another: messages, stability, the sender's load, loss.

One member sends and all receive, as in the text's sections 2.1 and 4.2. Every system is composed in
`antiphon.protocols.profiles`; membership and failure detection are ours and the same for those of one order,
so that messages count them, too. The channels of the mesh all have the same delay, so that distances, trees
and local groups save a receiver no time here; they move load.
"""

from dataclasses import replace
from typing import Any, Final

from antiphon.protocols.profiles import PROFILES
from antiphon.studies.formatting import number
from antiphon.studies.judging import unless
from antiphon.studies.model import Claim, Curve, Figure, Finding, Panel, Section, Table
from antiphon.studies.results import Results, Where
from antiphon.studies.study import Effort, Grid, Study

NAMES: Final = {
    "amoeba": "Amoeba",
    "lbrm": "LBRM",
    "lgmp": "LGMP",
    "mftp": "MFTP",
    "napp": "NAPP",
    "pa": "PA",
    "rmtp": "RMTP",
    "srm": "SRM",
    "tandem": "Tandem",
    "totem": "Totem",
    "train": "Train of messages",
    "xtp": "XTP",
}
MEMBERS: Final = (7, 30)
FEW, MANY = MEMBERS
NONE, SOME, MUCH = LOSSES = (0.0, 0.02, 0.1)
MESSAGES: Final = 200
SEEDS: Final[dict[Effort, int]] = {"quick": 1, "full": 10}
WORKLOAD: Final = {"senders": (1,), "messages": (MESSAGES,), "rate": (float(MESSAGES),), "size": (1000,)}


def where(profile: str, members: int, loss: float) -> dict[str, Any]:
    return {"scenario": "profile", "profile": profile, "members": members, "loss": loss}


# The table


def rows(results: Results) -> list[list[str]]:
    """A row for each system, size and loss; what did not finish has a dash for its times."""
    return [
        [NAMES[profile], str(members), f"{loss:.0%}", *cells(results, where(profile, members, loss))]
        for members in MEMBERS
        for loss in LOSSES
        for profile in PROFILES
        if results.matching(where(profile, members, loss))
    ]


def cells(results: Results, point: Where) -> list[str]:
    def mean(metric: str) -> float:
        return results.one(point, metric).mean

    return [
        number(mean("network_messages") / MESSAGES),
        number(mean("sender_sent") / MESSAGES),
        number(mean("sender_received") / MESSAGES),
        number(mean("member_handled") / MESSAGES),
        number(1000 * mean("latency_s")),
        number(1000 * mean("latency_p99_s")),
        number(1000 * mean("stability_s")),
        number(mean("throughput")),
        f"{mean('finished'):.0%}",
        number(mean("violations")),
    ]


COLUMNS: Final = (
    "system", "members", "loss", "transmissions", "sender sends", "sender gets", "member handles",
    "latency (ms)", "99% (ms)", "stable after (ms)", "delivered a second", "finished", "violations",
)  # fmt: skip


# What the text says of them


def compare(results: Results, metric: str, less: str, more: str, unit: str, scale: float = 1.0) -> Finding:
    """Whether one system has less of something than another under loss, at both sizes."""
    means = {
        members: [scale * results.one(where(name, members, MUCH), metric).mean for name in (less, more)]
        for members in MEMBERS
    }
    told = "; ".join(
        f"n={members}: {NAMES[less]} {number(low)}, {NAMES[more]} {number(high)}"
        for members, (low, high) in means.items()
    )
    return Finding(ours=f"{unit}, 10% lost: {told}", holds=all(low < high for low, high in means.values()))


def anyone_spares_the_sender(results: Results) -> Finding:
    return compare(results, "sender_sent", "srm", "napp", "sent by the sender for a message", 1 / MESSAGES)


def anyone_is_faster(results: Results) -> Finding:
    found = compare(results, "latency_s", "srm", "napp", "mean latency (ms)", 1000.0)
    reason = (
        "All members are equally far apart here, so that the sender is as near as any other: what is gained "
        "by asking near members cannot show, and the answers' delay does."
    )
    return replace(found, reason=unless(bool(found.holds), reason))


def hierarchy_spares_the_sender(results: Results) -> Finding:
    return compare(
        results, "sender_received", "rmtp", "xtp", "received by the sender a message", 1 / MESSAGES
    )


def servers_spare_the_sender(results: Results) -> Finding:
    found = compare(results, "sender_sent", "lbrm", "xtp", "sent by the sender for a message", 1 / MESSAGES)
    reason = (
        "The sender is the first member here, and so the head of its sub-group and the log server of the "
        "others: it answers them one by one, where XTP's multicasts once for all."
    )
    return replace(found, reason=unless(bool(found.holds), reason))


def lock_step_is_slow(results: Results) -> Finding:
    """Tandem's throughput falls with the group, and is far below PA's, which allows concurrent multicasts."""
    means = {
        name: [results.one(where(name, members, MUCH), "throughput").mean for members in MEMBERS]
        for name in ("tandem", "pa")
    }
    tandem, concurrent = means["tandem"], means["pa"]
    told = "; ".join(
        f"n={members}: Tandem {number(slow)}, PA {number(fast)}"
        for members, slow, fast in zip(MEMBERS, tandem, concurrent, strict=True)
    )
    calm = results.one(where("tandem", MANY, NONE), "throughput").mean
    return Finding(
        ours=f"delivered a second of {MESSAGES} offered, 10% lost: {told}; Tandem without loss, n={MANY}: "
        f"{number(calm)}",
        holds=tandem[1] < tandem[0] and 2 * tandem[1] < concurrent[1],
        condition="" if 2 * calm < MESSAGES else "messages are lost; without loss it keeps up with this rate",
    )


CLAIMS: Final = (
    Claim(
        id="P1",
        where="2.1.2",
        statement="That any member may retransmit (SRM) reduces the burden on the sender, compared with NAPP",
        judge=anyone_spares_the_sender,
    ),
    Claim(
        id="P2",
        where="2.1.2",
        statement="It shortens the retransmission delay",
        judge=anyone_is_faster,
    ),
    Claim(
        id="P3",
        where="2.1.4",
        statement="RMTP's hierarchy reduces the number of ACKs collected by the sender",
        judge=hierarchy_spares_the_sender,
    ),
    Claim(
        id="P4",
        where="2.1.4",
        statement="LBRM's log servers significantly reduce the sender's burden of handling retransmissions",
        judge=servers_spare_the_sender,
    ),
    Claim(
        id="P5",
        where="4.2.1",
        statement="Tandem allows one update at a time, so its performance is very bad in large groups; PA "
        "allows concurrent multicasts",
        judge=lock_step_is_slow,
    ),
)


def panel(metric: str, label: str, title: str) -> Panel:
    return Panel(
        title=title,
        x="loss",
        x_label="share of arrivals lost",
        y=metric,
        y_label=label,
        curves=[
            Curve(name=NAMES[name], where={"scenario": "profile", "profile": name, "members": MANY}, hue=hue)
            for hue, name in enumerate(PROFILES)
        ],
        log_y=True,
    )


STUDY: Final = Study(
    name="profiles",
    paper="Guo, the systems of chapters 2 and 4",
    title="Twelve systems, composed",
    grids=(
        Grid(
            scenario="profile",
            axes={"profile": tuple(PROFILES), "members": MEMBERS, "loss": LOSSES, **WORKLOAD},
            seeds=SEEDS,
            quick={"loss": (NONE, MUCH)},
        ),
    ),
    sections=(
        Section(
            title="Twelve systems, composed",
            text="The systems that chapters 2 and 4 describe, each composed of the same parts "
            "(docs/profiles.md says of what, and what was assumed). One member sends 200 messages of 1000 "
            "bytes in a second; channels have a delay of 1 ms and lose what they lose independently.\n\n"
            "Transmissions, and what the sender and a member handle, are for each message; a multicast is "
            "one transmission for each receiver, and one PDU for its sender. Time to stability is the mean "
            "until the sender knows.",
            figures=(
                Figure(
                    id="P6",
                    title=f"Under loss, {MANY} members",
                    caption="Vertical axes are logarithmic.",
                    panels=[
                        panel("stability_s", "seconds", "time to stability"),
                        panel("latency_s", "seconds", "latency"),
                        panel("sender_sent", "PDUs in all", "sent by the sender"),
                        panel("sender_received", "PDUs in all", "received by the sender"),
                    ],
                ),
            ),
            tables=(
                Table(
                    title="The systems beside one another",
                    caption="Promises of rings and sequencers are stronger: one order for all messages.",
                    columns=COLUMNS,
                    compute=rows,
                ),
            ),
            claims=CLAIMS,
        ),
    ),
)
