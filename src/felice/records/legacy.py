"""Message formats 0 and 1, which Kafka wrote before 0.11: recognised and refused.

Kafka 4 neither takes them from producers nor converts to them (KIP-896), and Felice never writes
them. Their magic byte has the same position as in format 2, so that an old format is
distinguished from broken bytes before any other field is used.
"""

from __future__ import annotations

from typing import NoReturn

from felice.records.errors import CorruptBatch, InvalidRecord

LEGACY_MAGIC = (0, 1)


def refuse_legacy(magic: int, position: int) -> NoReturn:
    """Raises for a magic byte other than 2: `InvalidRecord` for 0 and 1, `CorruptBatch` for other values."""
    if magic in LEGACY_MAGIC:
        raise InvalidRecord(f"batch at byte {position} has message format {magic}, only format 2 is accepted")
    raise CorruptBatch(f"batch at byte {position} has unknown magic {magic}")
