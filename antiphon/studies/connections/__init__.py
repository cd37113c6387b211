"""Campaigns of very many small group connections: each protocol's parameters, drawn from a run's seed.

`antiphon.spark.connections` simulates and judges the runs. A protocol is drawn only faults that it promises
to survive, so that every finding of a campaign is a bug.
"""

from antiphon.studies.connections.drawings import DRAWINGS, drawing

__all__ = ["DRAWINGS", "drawing"]
