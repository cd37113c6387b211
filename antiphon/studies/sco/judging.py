"""How the claims of the SCO paper are judged.

- A quoted number holds if ours is within 10% of it.
- 'Much smaller' means at most half. 'Not much longer' means by less than 20%, as the text's summary has it.
- 'Smaller than 20%' and '50% smaller' are taken at their word.
- An order or a trend holds if it does at every point that was run.
- A claim about many points names the worst of them.
"""

from typing import Any, Final

from antiphon.analysis.control_schemes import Scheme, Traffic
from antiphon.spark.statistics import Point
from antiphon.studies.results import Results
from antiphon.studies.sco.settings import SCENARIOS, UNIT_MS, parameters

SMALL: Final = 0.20
HALF: Final = 0.50


def where(scheme: Scheme, group: Traffic, loss: float = 0.0, **more: Any) -> dict[str, Any]:
    """The selection of a group's runs."""
    return {"scenario": SCENARIOS[scheme], **parameters(scheme, group, loss), **more}


def there(results: Results, scheme: Scheme, group: Traffic, loss: float = 0.0, **more: Any) -> bool:
    return bool(results.matching(where(scheme, group, loss, **more)))


def _one(results: Results, scheme: Scheme, group: Traffic, loss: float, **more: Any) -> Point:
    (point,) = results.found(where(scheme, group, loss, **more))
    return point


def controls(results: Results, scheme: Scheme, group: Traffic, loss: float = 0.0) -> float:
    """Control messages per application message."""
    point = _one(results, scheme, group, loss)
    return point.metrics["control_messages"].mean / point.metrics["admitted"].mean


def messages(results: Results, scheme: Scheme, group: Traffic, loss: float = 0.0, **more: Any) -> float:
    """Messages on the network per application message."""
    point = _one(results, scheme, group, loss, **more)
    crossing = point.metrics["data_messages"].mean + point.metrics["control_messages"].mean
    return crossing / point.metrics["admitted"].mean


def delay(results: Results, scheme: Scheme, group: Traffic, loss: float = 0.0, **more: Any) -> float:
    """Units of time until a destination has fully accepted a message."""
    return 1000.0 * _one(results, scheme, group, loss, **more).metrics["acceptance_s"].mean / UNIT_MS
