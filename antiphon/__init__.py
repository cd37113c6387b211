"""Antiphon: ordered, reliable multicast for Python. Run it, prove it, study it.

>>> import antiphon
>>> run = antiphon.simulate("sequencer", members=3, messages=30, loss=0.2, seed=1)
>>> run.metrics["deliveries"], run.violations
(90, [])
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antiphon.spark.single import simulate as simulate

__version__ = "0.1.0"
__all__ = ["__version__", "simulate"]


def __getattr__(name: str) -> Any:
    """Load the library's functions when they are used: importing the package stays quick."""
    if name == "simulate":
        from antiphon.spark.single import simulate

        return simulate
    raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
