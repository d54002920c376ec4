"""NONE: no key."""

from __future__ import annotations

from typing import Any

from felice.pipelines.sql.rows.columns import Row, RowFormat


class NoneFormat(RowFormat):
    """Each key is read as null, whatever bytes the record has as its key. Only a null key can be written."""

    name = "NONE"

    def write(self, value: Row) -> bytes:
        """Raises ValueError, because only a null key can be written."""
        raise ValueError("the format NONE has no keys")

    def read(self, data: bytes) -> Any:
        """None for all bytes."""
        return None
