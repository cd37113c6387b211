"""Campaigns of very many small group connections: what is drawn for each protocol from a run's seed.

`antiphon.spark.connections` simulates and judges them. A protocol is drawn only what it promises to survive,
so that whatever a campaign finds is a mistake; `drawings` says for each what that is.
"""

from antiphon.studies.connections.drawings import DRAWINGS, drawing

__all__ = ["DRAWINGS", "drawing"]
