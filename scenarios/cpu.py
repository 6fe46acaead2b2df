"""What work costs, whoever else is busy on the machine."""

from __future__ import annotations

import resource


def cpu_seconds() -> float:
    """Processor time so far of this process and of those that it started and that have ended."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
