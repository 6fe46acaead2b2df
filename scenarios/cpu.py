"""CPU time: the cost of work, however busy the machine is."""

from __future__ import annotations

import resource


def cpu_seconds() -> float:
    """CPU time so far of this process and of its finished child processes."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
