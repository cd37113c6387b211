"""What the trace of one simulated round of stability detection must say."""

from collections import defaultdict
from typing import Any

from antiphon.sim.scenario import Metrics, Scenario
from antiphon.trace.recorder import MemoryRecorder


def check_trace(scenario: Scenario, parameters: dict[str, Any], seed: int = 3) -> Metrics:
    """Everyone declares stable what all hold, no more and no less; recording and repeating change nothing."""
    recorder = MemoryRecorder("r")
    metrics = scenario.run(scenario.configure(parameters), seed, recorder)
    held: dict[tuple[str, str], int] = {}
    stable: dict[tuple[str, str], int] = defaultdict(int)
    for event in recorder.events():
        assert event.sender is not None
        place, count = (event.site, event.sender), event.count or 1
        if event.kind in ("send", "receive"):
            held[place] = count
        else:
            assert (event.kind, event.number) == ("stable", stable[place])
            stable[place] += count
    sites, senders = {site for site, _ in held}, {sender for _, sender in held}
    least = {sender: min(held[site, sender] for site in sites) for sender in senders}
    assert dict(stable) == {(site, sender): least[sender] for site in sites for sender in senders}
    assert any(count > least[sender] for (_, sender), count in held.items())
    assert metrics == scenario.run(scenario.configure(parameters), seed, None)
    return metrics
