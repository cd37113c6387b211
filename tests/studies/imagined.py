"""Results of runs that were never made: what a study would see if its metrics followed a rule of ours."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from antiphon.spark.statistics import Point, Summary
from antiphon.studies.model import Effort, Results, Study
from antiphon.studies.reproduce import defaults_of

METRICS = (
    *("tpr_s", "tpr_last_s", "steps", "hop_messages", "finished"),
    *("queue_mean", "queue_max", "queue_node_mean", "queue_node_max"),
    *("step", "window_low", "window_high", "iterations", "evaluations"),
    *("detection_last_s", "mistakes", "flaps"),
    *(
        "throughput",
        "busy_throughput",
        "latency_s",
        "latency_p99_s",
        "halted_share",
        "slowed_share",
        "deliveries",
    ),
    *("violations", "violated", "unnoticed", "disagreements", "unavailable", "spells", "present_share"),
    *("graph_mean", "graph_p95", "graph_max", "report_share", "miss_rate", "operations_per_s"),
    *("graphs", "arcs", "untrue", "contradictions", "order_dependent"),
    *("arcs_before", "arcs_replaced", "relations_undone"),
    *("admitted", "accepted", "acceptance_s", "data_messages", "control_messages", "metadata_bytes"),
    *("control_bytes", "pairs", "preceding", "missed", "invented", "causal", "stated", "meant"),
    *("out_of_order", "order_0", "order_1", "order_2", "order_3"),
)
Rule = Callable[[Mapping[str, Any]], Mapping[str, float]]


def one_value(value: float, count: int = 20) -> Summary:
    return Summary(count, value, 0.0, value, value, value, value, (value,) * count)


def imagine(study: Study, effort: Effort, rule: Rule = lambda _: {}, otherwise: float = 1.0) -> Results:
    """Every point of the study's grids, with the metrics that the rule gives and `otherwise` for the rest."""
    defaults = defaults_of(study)
    points = []
    for scenario, parameters in dict.fromkeys((job.scenario, job.parameters) for job in study.jobs(effort)):
        given = json.loads(parameters)
        found = rule({"scenario": scenario, **defaults[scenario], **given})
        metrics = {name: one_value(float(found.get(name, otherwise))) for name in (*METRICS, *found)}
        points.append(Point(scenario, given, metrics))
    return Results(points, defaults)
