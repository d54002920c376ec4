"""Tells a process from a later one with the same id."""

from __future__ import annotations

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
