"""Message formats 0 and 1, which Kafka wrote before 0.11: recognised and refused.

Kafka 4 neither takes them from producers nor converts to them (KIP-896), and a log that Felice
wrote never holds them. They share the position of the magic byte with format 2, so that a wrong
format is told apart from broken bytes before any other field is believed.
"""

from __future__ import annotations

from typing import NoReturn

from felice.records.errors import CorruptBatch, InvalidRecord

LEGACY_MAGIC = (0, 1)


def refuse_legacy(magic: int, position: int) -> NoReturn:
    """Raises for a magic byte other than 2: a rule broken for 0 and 1, broken bytes for the rest."""
    if magic in LEGACY_MAGIC:
        raise InvalidRecord(f"batch at byte {position} has message format {magic}, only format 2 is accepted")
    raise CorruptBatch(f"batch at byte {position} has unknown magic {magic}")
