"""How much memory this process may use."""

import os
from pathlib import Path


def memory_bytes() -> int:
    """The machine's memory, or the container's share of it."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        # In a container the control group sets the limit.
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return physical
    return min(physical, int(limit)) if limit.isdigit() else physical
