"""Environment variables, read where the process begins and nowhere else in the broker tower."""

from __future__ import annotations

import os


def is_set(name: str) -> bool:
    """True if the variable says yes: set, and neither empty nor 0."""
    return os.environ.get(name, "") not in ("", "0")
