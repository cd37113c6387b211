"""The study of the profiles: every system, judged by the runs."""

from collections.abc import Mapping
from typing import Any

from antiphon.protocols.profiles import PROFILES
from antiphon.studies.profiles import COLUMNS, LOSSES, MEMBERS, NAMES, STUDY, rows
from antiphon.studies.reproduce import STUDIES, judge
from antiphon.studies.results import Results
from tests.studies.imagined import imagine


def test_it_compares_every_profile_at_every_size_and_loss() -> None:
    assert STUDIES["profiles"] is STUDY
    assert set(NAMES) == set(PROFILES)
    table = rows(imagine(STUDY, "full", otherwise=1.0))
    assert len(table) == len(PROFILES) * len(MEMBERS) * len(LOSSES)
    assert {len(row) for row in table} == {len(COLUMNS)}
    assert len(rows(imagine(STUDY, "quick"))) == 2 * len(PROFILES) * len(MEMBERS)


def test_without_runs_nothing_is_measured_and_all_say_so() -> None:
    judged = judge(STUDY, Results([]), "quick")
    assert {one.verdict for one in judged} == {"not measured"}
    assert all(one.reason for one in judged)


def test_claims_are_judged_by_the_runs() -> None:
    spared = {"srm": 1.0, "rmtp": 1.0, "lbrm": 1.0, "tandem": 1.0}

    def as_told(point: Mapping[str, Any]) -> Mapping[str, float]:
        level = spared.get(point["profile"], 300.0)
        slow = 100.0 if point["members"] == MEMBERS[0] else 10.0
        found = {"sender_sent": level, "sender_received": level, "latency_s": level}
        return found | {"throughput": slow if point["profile"] == "tandem" else 300.0}

    assert {one.verdict for one in judge(STUDY, imagine(STUDY, "quick", as_told), "quick")} == {"reproduced"}
    assert {one.verdict for one in judge(STUDY, imagine(STUDY, "quick"), "quick")} == {"not reproduced"}
