"""NONE: no key."""

from __future__ import annotations

from typing import Any

from felice.pipelines.sql.rows.columns import Row, RowFormat


class NoneFormat(RowFormat):
    """The key is always null, whatever is in its topic."""

    name = "NONE"

    def write(self, value: Row) -> bytes:
        """Refuse a key: only null can be written."""
        raise ValueError("the format NONE has no keys")

    def read(self, data: bytes) -> Any:
        """Null."""
        return None
