"""PDUs cost what they weigh: sizes come from encoding."""

from typing import Any

import pytest

from antiphon.core.packing import pack
from antiphon.core.wire import Codec
from antiphon.protocols.metagroups.pdus import PDUS, Install, Request, SiteRecord
from antiphon.protocols.metagroups.view import NO_FOUNDER, first_decision
from antiphon.sim import groups
from antiphon.sim.scenarios.metagroups import SCENARIO
from antiphon.sim.sizes import encoded_size


def test_a_size_is_the_length_of_the_datagram() -> None:
    size_of, codec = encoded_size(PDUS), Codec(PDUS)
    pdu = Request((1, 0), 0, (0, 0), 1, 0, "A", pack([b"x" * 500]))
    assert size_of(pdu) == len(codec.encode(pdu, sender="s00")) > 500


def test_a_table_weighs_what_its_sites_weigh() -> None:
    size_of = encoded_size(PDUS)

    def table(sites: int) -> int:
        records = tuple(SiteRecord(f"s{index:03d}", (0, 0), 1, ("A",)) for index in range(sites))
        return size_of(Install("", first_decision(NO_FOUNDER, records, "shallow")))

    assert table(200) - table(100) > 100 * len("s000A")


CALM = {"members": 12, "groups": 3, "overlap": 1.5, "messages": 40, "rate": 40.0, "joins": 3}
SLOW = {**CALM, "mbps": 0.5}


def seconds(knobs: dict[str, Any]) -> float:
    """The mean latency of a run of meta-groups."""
    metrics = SCENARIO.run(SCENARIO.configure(knobs), 1, None)
    assert metrics["finished"]
    found = metrics["latency_s"]
    assert isinstance(found, float)
    return found


def test_pdus_take_time() -> None:
    """On a slow network a run with changes of members takes as long as its PDUs weigh, tables included."""
    assert seconds(SLOW) > 1.5 * seconds(CALM)


def test_a_run_weighs_each_pdu(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer than one in which each PDU weighs 60 bytes, as all did once."""
    weighed = seconds(SLOW)
    monkeypatch.setattr(groups, "encoded_size", lambda _pdus: lambda _pdu: 60)
    assert weighed > 1.2 * seconds(SLOW)
