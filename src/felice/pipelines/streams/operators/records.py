"""Operators without state whose functions see whole records, with their timestamps and headers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.record import LATEST_MS, TIME, Dropped, Headers, Record, Step, made
from felice.pipelines.streams.telling import shown

RecordFunction = Callable[[Record], Record | None]
RecordsFunction = Callable[[Record], Iterable[Record] | None]

_HAS_TIME = f"type(timestamp) is int and 0 <= timestamp <= {LATEST_MS}"
_EACH = "for key, value, timestamp, headers in found"


@dataclass(frozen=True, slots=True)
class MapRecords:
    """Replaces the record, or drops it if the function returns None. A result without a valid timestamp is dropped.

    `kept_key` is the format of the keys if the function must not change them.
    """

    function: RecordFunction
    kept_key: Format | None

    def step(self) -> Step:
        """One record, or none."""
        # A record with the headers, and perhaps the key, that it had needs no further check.
        is_plain = "found.__class__ is {Record} and found[3] is headers"
        if self.kept_key is not None:
            is_plain += " and found[0] is key"
        return Step(
            "found = {function}({made}({Record}, (key, value, timestamp, headers)))\n"
            f"found = () if found is None else (found if {is_plain} else {{checked}}(found, key),)",
            {"function": self.function, "made": made, "Record": Record, "checked": self._checked},
            then=_EACH,
            results_if=_HAS_TIME,
            drops=Dropped(TIME),
        )

    def _checked(self, found: object, key: Any) -> Record:
        return _with_key(checked_record(found, "the function of map_records"), key, self.kept_key)


@dataclass(frozen=True, slots=True)
class FlatMapRecords:
    """Replaces the record by those that the function returns. Results without a valid timestamp are dropped.

    `kept_key` is the format of the keys if the function must not change them.
    """

    function: RecordsFunction
    kept_key: Format | None

    def step(self) -> Step:
        """Records, or none."""
        return Step(
            "found = {records}(key, value, timestamp, headers)",
            {"records": self._records},
            then=_EACH,
            results_if=_HAS_TIME,
            drops=Dropped(TIME),
        )

    def _records(self, key: Any, value: Any, timestamp: int, headers: Headers) -> list[Record]:
        found = self.function(made(Record, (key, value, timestamp, headers))) or ()
        who = "the function of flat_map_records"
        return [_with_key(checked_record(one, who), key, self.kept_key) for one in found]


def checked_record(found: object, who: str) -> Record:
    """The record, with headers that do not change. Raises ValueError if it is none."""
    if not isinstance(found, Record):
        raise ValueError(f"{who} returned {shown(found)}; it must return records")
    if not found.headers:
        return found if type(found.headers) is tuple else found._replace(headers=())
    headers = tuple(
        (name, None if value is None else bytes(memoryview(value))) for name, value in found.headers
    )
    if not all(isinstance(name, str) for name, _ in headers):
        raise ValueError(f"{who} returned a record with the headers {shown(found.headers)}")
    return found._replace(headers=headers)


def _with_key(found: Record, key: Any, kept_key: Format | None) -> Record:
    """The record. Raises ValueError if it must have this key and has another one."""
    if kept_key is not None and not kept_key.is_same(found.key, key):
        raise ValueError(f"the key {shown(key)} became {shown(found.key)}, although keeps_key is true")
    return found
