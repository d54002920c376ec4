"""How large a result may be: functions must not make gigabytes of small arguments."""

from __future__ import annotations

MOST = 10_000_000
"""Characters of a text, bytes, or elements of an array."""


def within(size: int) -> int:
    """The size of a result that will be made. Raises ValueError for one that is too large."""
    if size > MOST:
        raise ValueError(f"the result would have {size} characters or elements, and {MOST} are the most")
    return size
