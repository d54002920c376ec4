"""The folder of a record, by Confluent's partitioners."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from typing import Any
from zoneinfo import ZoneInfo

from felice.pipelines.connect.configuration.definitions import date_pattern
from felice.pipelines.connect.connectors.objects.options import DAILY, DEFAULT, FIELD, HOURLY
from felice.pipelines.connect.model.errors import DataError
from felice.pipelines.connect.model.record import SinkRecord
from felice.pipelines.connect.model.schema import Struct

_UTC = datetime.UTC
_PATTERNS = {
    DAILY: ("'year'=yyyy/'month'=MM/'day'=dd", 86_400_000),
    HOURLY: ("'year'=yyyy/'month'=MM/'day'=dd/'hour'=HH", 3_600_000),
}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=_UTC)


class Partitioner:
    """Says which folder a record belongs to, and which time it has."""

    def __init__(self, options: Mapping[str, Any], now: Callable[[], datetime.datetime]) -> None:
        """Raises `ConfigError` for a pattern that cannot be used."""
        self._kind: str = options["partitioner.class"]
        self._fields: list[str] = options["partition.field.name"]
        self._delimiter: str = options.get("directory.delim", "/")
        self._zone = ZoneInfo(options["timezone"])
        self._extractor: str = options["timestamp.extractor"]
        self._field: str = options["timestamp.field"]
        self._now = now
        self.is_by_time = self._kind not in (DEFAULT, FIELD)
        if self.is_by_time:
            given = options["path.format"], options["partition.duration.ms"]
            pattern, duration_ms = _PATTERNS.get(self._kind, given)
            self._pattern = date_pattern("path.format", _years(pattern))
            self._duration_ms = max(1, duration_ms)

    def folder(self, record: SinkRecord) -> str:
        """The folder below the topic's. Raises `DataError`."""
        if self._kind == DEFAULT:
            return f"partition={record.original_partition}"
        if self._kind == FIELD:
            return self._delimiter.join(f"{name}={_named(record.value, name)}" for name in self._fields)
        moment = self.time_of(record)
        ms = (moment - _EPOCH) // datetime.timedelta(milliseconds=1)
        if self._duration_ms < 86_400_000:
            ms -= ms % self._duration_ms
            moment = _EPOCH + datetime.timedelta(milliseconds=ms)
        return self._pattern.format(moment.astimezone(self._zone))

    def time_of(self, record: SinkRecord) -> datetime.datetime:
        """The record's time. Raises `DataError`."""
        if self._extractor == "Wallclock":
            return self._now()
        if self._extractor == "Record":
            if record.timestamp is None:
                raise DataError("the record has no timestamp")
            return _EPOCH + datetime.timedelta(milliseconds=record.timestamp)
        return _moment(_member(record.value, self._field), self._field)


def _years(pattern: str) -> str:
    """The pattern with `y` for `Y` outside of quotes: Confluent's patterns are Joda's, where both are years."""
    return "'".join(
        part.replace("Y", "y") if number % 2 == 0 else part for number, part in enumerate(pattern.split("'"))
    )


def _named(value: Any, name: str) -> str:
    found = _member(value, name)
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, (str, int)):
        # A text cannot leave its folder.
        return re.sub(r"[/\x00]", "_", str(found))
    raise DataError(f"the member {name} is no text, whole number or truth value, which a folder needs")


def _member(value: Any, path: str) -> Any:
    for name in path.split("."):
        if isinstance(value, Struct) or (isinstance(value, Mapping) and name in value):
            value = value[name]
        else:
            raise DataError(f"the value has no member {path}")
    return value


def _moment(value: Any, name: str) -> datetime.datetime:
    if isinstance(value, datetime.datetime):
        return value
    if isinstance(value, bool):
        raise DataError(f"the member {name} holds no time")
    if isinstance(value, int):
        return _EPOCH + datetime.timedelta(milliseconds=value)
    if isinstance(value, str):
        try:
            found = datetime.datetime.fromisoformat(value)
        except ValueError:
            raise DataError(f"the member {name} is no time in ISO 8601") from None
        return found if found.tzinfo is not None else found.replace(tzinfo=_UTC)
    raise DataError(f"the member {name} holds no time")
