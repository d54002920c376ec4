"""NONE: no key."""

from __future__ import annotations

from typing import Any

from felice.pipelines.sql.rows.columns import Row, RowFormat


class NoneFormat(RowFormat):
    """Reads each key as null, and ignores its bytes. Writes only null keys."""

    name = "NONE"

    def write(self, value: Row) -> bytes:
        """Raises ValueError, because only a null key can be written."""
        raise ValueError("the format NONE has no keys")

    def read(self, data: bytes) -> Any:
        """None for all bytes."""
        return None
