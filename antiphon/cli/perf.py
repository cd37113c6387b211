"""`antiphon perf`: a live throughput and latency test with local members, a process each."""

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from antiphon.audit.local import audit_locally
from antiphon.cli.console import data, print_json, status
from antiphon.cli.group_files import read_membership
from antiphon.cli.live_options import Insecure, Key, Network, Options, Order, Profile, RateLimit, given
from antiphon.core.errors import UsageError
from antiphon.live.orders import compose, find_order, make_order
from antiphon.load.processes import ChurnBy, MemberProcesses, Plan, summarise


def perf(
    *,
    members: Annotated[int, Parameter(help="members, a process each")] = 7,
    size: Annotated[int, Parameter(help="bytes of a message's body")] = 1000,
    seconds: Annotated[float, Parameter(help="how long to measure")] = 5.0,
    order: Order = "fifo",
    profile: Profile = None,
    options: Options = None,
    senders: Annotated[int | None, Parameter(help="members that send; all by default")] = None,
    rate: Annotated[float, Parameter(help="messages a second of all together; 0: as many as it takes")] = 0.0,
    destinations: Annotated[int, Parameter(help="random others that each message goes to; 0: all")] = 0,
    groups: Annotated[
        Path | None,
        Parameter(help="a file with several groups (see antiphon groups); its sites are the members"),
    ] = None,
    network: Network = "loopback",
    key: Key = None,
    insecure: Insecure = False,
    rate_bytes_s: RateLimit = None,
    churn: Annotated[int, Parameter(help="members that vanish and return by turns")] = 0,
    churn_by: Annotated[ChurnBy, Parameter(help="how they vanish: kill, stop or leave")] = "kill",
    away: Annotated[float, Parameter(help="seconds that each is away")] = 2.0,
    back: Annotated[float, Parameter(help="seconds that each is back")] = 3.0,
    uvloop: Annotated[bool, Parameter(help="run the members' event loops on uvloop", negative="")] = False,
    trace: Annotated[Path | None, Parameter(help="keep the trace in this folder")] = None,
    json: Annotated[bool, Parameter(help="print one JSON object", negative="")] = False,
) -> int:
    """Let local members load a live group: all of them send and read, and every message is checked. The
    group's trace is judged in the end. Prints the messages delivered per second at each member (the least of
    them), the latency, with --rate the time until messages are stable, the share of time in which delivery
    halted, what was lost, and the violations found.

    Example: antiphon perf --members 7 --size 1000 --seconds 5 --order fifo --churn 1
    """
    if find_order(order).several and groups is None:
        raise UsageError(f"The order '{order}' needs groups.", hint="Name a file of them: --groups FILE")
    chosen, told = compose(profile, order, given(options))
    assert isinstance(chosen, str), "a name remains a name"
    make_order(chosen, {"sequencer": "m0"} | told if chosen == "sequencer" else told)
    plan = Plan(
        members=members, size=size, seconds=seconds, order=chosen, options=told, senders=senders, rate=rate,
        destinations=destinations, groups={} if groups is None else read_membership(groups),
        network=network, key=None if key is None else str(key), insecure=insecure,
        rate_bytes_s=rate_bytes_s, churn=churn, churn_by=churn_by, away_s=away, back_s=back, uvloop=uvloop,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="antiphon-perf-") as temporary:
        folder = Path(temporary) / "trace" if trace is None else trace
        with status(f"{plan.members} members send for {seconds:g} s ..."):
            reports = asyncio.run(MemberProcesses(plan, folder).run())
        with status("Judging the trace ..."):
            result = audit_locally([folder], limit=0, by_promise=True)
    figures = {**summarise(plan, reports), "violations": sum(result.broken.values())}
    if json:
        print_json(figures)
    else:
        show(figures)
    return 0 if not figures["violations"] and not figures["lost"] else 1


def show(figures: dict[str, Any]) -> None:
    data.print(f"{figures['group_throughput']:>14,.0f}  messages a second at each member")
    if "deliveries_per_s" in figures:
        data.print(f"{figures['deliveries_per_s']:>14,.0f}  deliveries a second at all members together")
    for figure, words in (("latency_ms", "latency"), ("stability_ms", "until stable")):
        for name, value in figures[figure].items():
            if value is not None:
                data.print(f"{value:>14,.2f}  ms {words}, {name}")
    data.print(f"{figures['halted_share']:>14.1%}  of the time halted")
    data.print(f"{figures['processor_share']:>14.2%}  of a processor, the busiest member")
    data.print(f"{figures['control_bytes_s']:>14,}  bytes a second of control, the busiest member")
    data.print(f"{figures['lost']:>14,}  lost")
    data.print(f"{figures['violations']:>14,}  violations")
