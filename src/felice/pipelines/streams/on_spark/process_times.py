"""Tells a process from a later one with the same id, and from one of another machine."""

from __future__ import annotations

import secrets
from pathlib import Path


def start_of_process(process_id: int) -> str | None:
    """The time at which a process began. It differs for a later process with the same id.

    None if there is no such process.
    """
    try:
        fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # A zombie process counts as ended.
    return None if fields[0] == "Z" else fields[19]


def id_of_machine() -> str:
    """Differs for another machine, another start of it, and a container whose processes have numbers of their own.

    Where the system does not tell, it is different for each process.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}-{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return _RANDOM


_RANDOM = secrets.token_hex(8)
