"""For an application's own tests: groups in one process, on simulated time, with faults on demand.

See docs/testing-applications.md.
"""

from antiphon.testing.clusters import Cluster, cluster
from antiphon.testing.loop import run

__all__ = ["Cluster", "cluster", "run"]
