"""PDUs cost what they weigh: sizes come from encoding."""

from antiphon.core.packing import pack
from antiphon.core.wire import Codec
from antiphon.protocols.metagroups.pdus import PDUS, Install, Request, SiteRecord
from antiphon.protocols.metagroups.view import NO_FOUNDER, first_decision
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


def test_tables_take_time() -> None:
    """On a slow network a change of members lasts as long as its tables take."""
    calm = {"members": 12, "groups": 3, "overlap": 1.5, "messages": 40, "rate": 40.0, "joins": 3}

    def seconds(mbps: float) -> float:
        metrics = SCENARIO.run(SCENARIO.configure({**calm, "mbps": mbps}), 1, None)
        assert metrics["finished"]
        found = metrics["latency_s"]
        assert isinstance(found, float)
        return found

    assert seconds(0.5) > 1.5 * seconds(0.0)
