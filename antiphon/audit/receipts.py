"""Precedence by receipt: a log in which a site learns of a message when it receives it."""

import numpy as np

from antiphon.audit.kernels import atomicity, identity
from antiphon.audit.log import Log
from antiphon.core.recording import KINDS

RECEIVE, DELIVER = KINDS.index("receive"), KINDS.index("deliver")


def by_receipt(log: Log) -> Log:
    """The log with every receipt in the form of a delivery, for the kernels that find which message precedes
    which. Deliveries remain: a log without receive rows shows receipts by deliveries alone. So does that of a
    site with absences, which may forget what it has received."""
    absent = atomicity.absent_sites(log.kinds, log.starts, len(log.sites))[: log.logged]
    counts = np.repeat(~absent.astype(np.bool_), np.diff(log.starts))
    kinds = np.where((log.kinds == RECEIVE) & counts, DELIVER, log.kinds).astype(np.uint8)
    count = int(np.count_nonzero(kinds == DELIVER))
    delivered, entries = np.empty(count, np.int32), np.empty(count, np.int32)
    starts = np.empty(len(log.starts), np.int64)
    identity.collect_deliveries(kinds, log.messages, log.starts, delivered, entries, starts)
    return log._replace(kinds=kinds, delivered=delivered, delivery_entries=entries, delivery_starts=starts)
