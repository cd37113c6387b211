"""What tests of what a member makes of PDUs share."""

from random import Random
from typing import Any

from antiphon.core.effects import Effect
from antiphon.core.inputs import Start
from antiphon.core.time import MILLISECOND_NS
from antiphon.protocols.dpg import Dpg, DpgConfiguration
from antiphon.protocols.dpg.pdus import Report, Tag
from antiphon.protocols.dpg.reports import ReportLists, read
from antiphon.protocols.dpg.services.lan import LanService
from antiphon.protocols.dpg.tag_lists import pack_tags

MS = MILLISECOND_NS


def quiet(_effect: Effect) -> None:
    """What an order says is of no interest."""


def report(tags: list[Tag], index: int | None = None, **fields: Any) -> Report:
    told: dict[str, Any] = {
        "incarnation": 0, "serial": 1, "clock_ns": 0, "index": len(tags) if index is None else index,
        "digest": 0, "agreed": pack_tags(tags), "links": bytes(len(tags)), "vertices": b"", "arcs": b"",
        "lost": b"", "demand_ns": 0, "listening": False, "streams": {}, "service": b"",
    }  # fmt: skip
    return Report(**(told | fields))


def lists_of(told: Report) -> ReportLists:
    lists = read(told)
    assert lists is not None
    return lists


def hears_itself() -> Dpg:
    member = Dpg("a", DpgConfiguration(), LanService(hears_itself=True), Random(0))
    member.handle(0, Start())
    return member
