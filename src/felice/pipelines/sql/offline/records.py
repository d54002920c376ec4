"""Records of tests as bytes, and back."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.sql.analysis.inference import TYPES, inferred_columns
from felice.pipelines.sql.catalogue import SESSION, Catalogue, SourceInfo, WindowInfo
from felice.pipelines.sql.compile.topology import key_format_of, value_format_of
from felice.pipelines.sql.rows import Columns, FormatDescription, is_bare, row_format
from felice.pipelines.sql.rows.plain import plain_of, value_of
from felice.pipelines.sql.rows.registry import Registry
from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.record import Headers, Window, Windowed
from felice.pipelines.streams.task import TopicRecord

TEXTS = ("DELIMITED",)
"""Formats whose records a test has as the text of their bytes."""


@dataclass(frozen=True, slots=True)
class Part:
    """The keys or values of a topic: their columns, how they are written, and whether a test has the bare value."""

    columns: Columns
    format: Format
    is_bare: bool
    is_text: bool

    def row(self, plain: Any) -> tuple[Any, ...] | None:
        """The row of a test's JSON. Raises ValueError."""
        if plain is None:
            return None
        if self.is_bare:
            (_, type_), *_ = self.columns
            return (value_of(type_, plain),)
        names = {name.upper(): one for name, one in plain.items()} if isinstance(plain, Mapping) else None
        if names is None:
            raise ValueError(f"expected an object with {', '.join(name for name, _ in self.columns)}")
        return tuple(
            value_of(type_, plain[name] if name in plain else names.get(name.upper()))
            for name, type_ in self.columns
        )

    def plain(self, row: tuple[Any, ...] | None) -> Any:
        """The row as a test's JSON has it."""
        if row is None:
            return None
        found = [plain_of(type_, value) for (_, type_), value in zip(self.columns, row, strict=True)]
        return found[0] if self.is_bare else dict(zip((name for name, _ in self.columns), found, strict=True))


class TopicTexts:
    """How a test's records of one topic are written and read."""

    def __init__(self, key: Part | None, value: Part, window: WindowInfo | None) -> None:
        self._key, self._value, self._window = key, value, window

    @classmethod
    def of_source(cls, source: SourceInfo, registry: Registry) -> TopicTexts:
        """Those of a stream or table."""
        key = None
        if source.key:
            key = _part(source.key_format, source.key, key_format_of(source, registry), is_key=True)
        value = _part(source.value_format, source.value, value_format_of(source, registry), is_key=False)
        return cls(key, value, source.window)

    def encode(self, given: Mapping[str, Any]) -> TopicRecord:
        """The record of a test's JSON. Raises ValueError."""
        headers: Headers = tuple(
            (one["KEY"], None if one.get("VALUE") is None else base64.b64decode(one["VALUE"]))
            for one in given.get("headers") or ()
        )
        key = self._encoded_key(given)
        value = given["value"].encode() if given.get("raw") else _encoded(self._value, given.get("value"))
        return TopicRecord(given["topic"], key, value, given.get("timestamp") or 0, headers)

    def _encoded_key(self, given: Mapping[str, Any]) -> bytes | None:
        plain = given.get("key")
        if plain is None or self._key is None:
            return None
        window = given.get("window")
        if window is None or self._window is None:
            return _encoded(self._key, plain)
        row = self._key.row(plain)
        return self._key.format.encode(
            Windowed(row, Window(window["start"], window.get("end", window["start"])))
        )

    def decode(self, record: TopicRecord) -> dict[str, Any]:
        """The record as a test's JSON has it."""
        found: dict[str, Any] = {"topic": record.topic, "key": None}
        if self._key is not None and record.key is not None:
            key = record.key.decode() if self._key.is_text and self._window is None else None
            if key is None:
                row = self._key.format.decode(record.key)
                if isinstance(row, Windowed):
                    kind = "session" if self._window is not None and self._window.kind == SESSION else "time"
                    found["window"] = {"start": row.window.start, "end": row.window.end, "type": kind}
                    row = row.key
                key = self._key.plain(row)
            found["key"] = key
        found["value"] = _decoded(self._value, record.value)
        found["timestamp"] = record.timestamp
        found["headers"] = [
            {"KEY": name, "VALUE": None if value is None else base64.b64encode(value).decode()}
            for name, value in record.headers
        ]
        return found


def _encoded(part: Part, plain: Any) -> bytes | None:
    if plain is None:
        return None
    if part.is_text:
        return str(plain).lower().encode() if isinstance(plain, bool) else str(plain).encode()
    return part.format.encode(part.row(plain))


def _decoded(part: Part, data: bytes | None) -> Any:
    if data is None:
        return None
    if part.is_text:
        return data.decode(errors="replace")
    return part.plain(part.format.decode(data))


def _part(description: FormatDescription, columns: Columns, format_: Format, *, is_key: bool) -> Part:
    bare = description.name in ("KAFKA", "NONE") or is_bare(description, columns, is_key)
    return Part(columns, format_, bare, description.name in TEXTS)


def texts_of_topic(given: Mapping[str, Any], registry: Registry) -> TopicTexts | None:
    """Those of a topic that a test describes with formats; None if it names none."""
    if given.get("keyFormat") is None and given.get("valueFormat") is None:
        return None
    name = given["name"]
    key = _described(given, "key", "KAFKA", name, registry)
    value = _described(given, "value", "JSON", name, registry)
    return None if value is None else TopicTexts(key, value, None)


def _described(
    given: Mapping[str, Any], part: str, default: str, topic: str, registry: Registry
) -> Part | None:
    is_key = part == "key"
    description = FormatDescription(str(given.get(f"{part}Format") or default).upper())
    subject = f"{topic}-{part}"
    columns: Columns | None = None
    if given.get(f"{part}Schema") is not None and description.name in TYPES:
        columns = inferred_columns(description, registry, topic, is_key=is_key)
    if columns is None:
        return None
    format_ = row_format(description, columns, registry=registry, subject=subject, is_key=is_key)
    return _part(description, columns, format_, is_key=is_key)


def source_over(catalogue: Catalogue, topic: str) -> SourceInfo | None:
    """The first stream or table over a topic."""
    return next((one for one in catalogue.sources.values() if one.topic == topic), None)
