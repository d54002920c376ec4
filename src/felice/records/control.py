"""Control records: records that the broker writes about the log itself.

A control batch holds one record, whose key is (version, type). Felice writes transaction markers, which carry the
epoch of the coordinator that decided. Consumers skip control batches. An unknown type is not an error.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from felice.records.errors import InvalidRecord
from felice.records.record import Record

_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_VERSION = 0


class ControlType(IntEnum):
    """The types of control records that Kafka defines."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(NamedTuple):
    """The end of one producer's transaction in one partition."""

    control_type: ControlType
    coordinator_epoch: int


def control_type(key: bytes | None) -> ControlType | None:
    """The type in a control record's key; None if the type is unknown. Raises `InvalidRecord` for a bad key."""
    if key is None or len(key) < _KEY.size:
        raise InvalidRecord(f"control record has a key of {len(key or b'')} bytes, 4 are needed")
    version, type_id = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecord(f"control record has key version {version}")
    try:
        return ControlType(type_id)
    except ValueError:
        return None


def end_transaction_marker(record: Record) -> EndTransactionMarker | None:
    """The marker in a control record; None if the record has another type."""
    kind = control_type(record.key)
    if kind is not ControlType.ABORT and kind is not ControlType.COMMIT:
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise InvalidRecord("transaction marker lacks its coordinator epoch")
    return EndTransactionMarker(kind, _MARKER_VALUE.unpack_from(record.value)[1])


def encode_marker(marker: EndTransactionMarker) -> tuple[bytes, bytes]:
    """Key and value of the control record for `marker`."""
    return _KEY.pack(_VERSION, marker.control_type), _MARKER_VALUE.pack(_VERSION, marker.coordinator_epoch)
