"""What this process uses of the machine. Only Linux has more than the processor time and the limit of descriptors."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

from felice.dataclass import dataclass

_SELF = Path("/proc/self")
_PAGE_BYTES = resource.getpagesize()


@dataclass(frozen=True, slots=True)
class ProcessStats:
    """Use of the machine since the start of the process; -1 where the system does not tell."""

    cpu_s: float
    open_descriptors: int
    max_descriptors: int
    virtual_bytes: int = -1
    resident_bytes: int = -1
    disk_read_bytes: int = -1
    disk_write_bytes: int = -1


def process_stats() -> ProcessStats:
    """Reads the numbers now; takes some tens of microseconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = used.ru_utime + used.ru_stime
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        pages = (_SELF / "statm").read_text().split()
        written = dict(line.split(": ") for line in (_SELF / "io").read_text().splitlines())
        return ProcessStats(
            cpu_s,
            _open_descriptors(),
            limit,
            int(pages[0]) * _PAGE_BYTES,
            int(pages[1]) * _PAGE_BYTES,
            int(written["read_bytes"]),
            int(written["write_bytes"]),
        )
    except OSError:
        return ProcessStats(cpu_s, -1, limit)


def _open_descriptors() -> int:
    # Since Linux 6.2 the directory's size is its number of entries, which are slow to list.
    return (_SELF / "fd").stat().st_size or len(os.listdir(_SELF / "fd"))


def thread_cpu_s() -> float:
    """Processor time of the calling thread."""
    return time.thread_time()
