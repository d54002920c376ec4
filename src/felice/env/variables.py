"""Environment variables. The broker reads them when the process starts, and only here."""

from __future__ import annotations

import os


def is_set(name: str) -> bool:
    """Whether the variable is set, and neither empty nor 0."""
    return os.environ.get(name, "") not in ("", "0")
