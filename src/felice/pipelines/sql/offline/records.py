"""Records of tests as bytes, and back."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.sql.analysis.inference import TYPES, inferred_columns
from felice.pipelines.sql.catalogue import SESSION, Catalogue, SourceInfo, WindowInfo
from felice.pipelines.sql.compile.topology import key_format_of, windowed
from felice.pipelines.sql.offline.topics import format_of_topic
from felice.pipelines.sql.rows import Columns, FormatDescription, is_bare, row_format
from felice.pipelines.sql.rows.avro_schema import defaults_of
from felice.pipelines.sql.rows.plain import json_text, plain_of, value_of
from felice.pipelines.sql.rows.registry import Registry
from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.record import Headers, Window, Windowed
from felice.pipelines.streams.task import TopicRecord

TEXTS = ("DELIMITED",)
"""The formats whose records are strings in a test: the text of their bytes."""


class _JsonOfTest(Format):
    """Writes inputs in JSON as the test has them. A query skips a record that does not fit its source's columns."""

    name = "JSON"

    def write(self, value: Any) -> bytes:
        """The JSON as text."""
        return json_text(value).encode()


@dataclass(frozen=True, slots=True)
class Part:
    """The keys or values of a topic: their columns, how they are written, and whether a test has the bare value."""

    columns: Columns
    format: Format
    is_bare: bool
    text: Format | None
    """How the text of a test is read as a row; None if a test has no text."""
    as_given: Format | None
    """The format that writes inputs without regard to the columns; None if inputs are written as rows."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The values of columns that the test leaves out of an input, by column."""

    def encode(self, plain: Any, window: Window | None = None) -> bytes | None:
        """The bytes of a test's JSON. Raises ValueError."""
        if plain is None:
            return None
        if self.text is not None and window is None:
            return _text_of(plain).encode()
        format_, given = (self.format, self.row(plain)) if self.as_given is None else (self.as_given, plain)
        return format_.encode(given if window is None else Windowed(given, window))

    def row(self, plain: Any) -> tuple[Any, ...] | None:
        """The row of a test's JSON. Raises ValueError."""
        if plain is None:
            return None
        if self.text is not None:
            return self.text.decode(_text_of(plain).encode())  # type: ignore[no-any-return]
        if self.is_bare:
            (_, type_), *_ = self.columns
            return (value_of(type_, plain),)
        names = {name.upper(): one for name, one in plain.items()} if isinstance(plain, Mapping) else None
        if names is None:
            raise ValueError(f"expected an object with {', '.join(name for name, _ in self.columns)}")
        return tuple(
            value_of(
                type_, plain[name] if name in plain else names.get(name.upper(), self.defaults.get(name))
            )
            for name, type_ in self.columns
        )

    def plain(self, row: tuple[Any, ...] | None) -> Any:
        """The row as a test's JSON has it."""
        if row is None:
            return None
        if self.text is not None:
            return (self.text.encode(row) or b"").decode()
        found = [plain_of(type_, value) for (_, type_), value in zip(self.columns, row, strict=True)]
        return found[0] if self.is_bare else dict(zip((name for name, _ in self.columns), found, strict=True))


class TopicTexts:
    """How a test's records of one topic are written and read, as far as it is known."""

    def __init__(
        self, key: Part | None = None, value: Part | None = None, window: WindowInfo | None = None
    ) -> None:
        self._key, self._value, self._window = key, value, window

    def over(self, other: TopicTexts) -> TopicTexts:
        """These, with what is not known as in others."""
        return TopicTexts(self._key or other._key, self._value or other._value, self._window or other._window)

    @classmethod
    def of_unread(cls) -> TopicTexts:
        """The texts of a topic that a test describes without a schema, and that no statement reads."""
        return cls(value=Part((), _JsonOfTest(), True, None, _JsonOfTest()))

    @classmethod
    def of_source(cls, source: SourceInfo, registry: Registry) -> TopicTexts:
        """The texts of a stream or table."""
        key = None
        if source.key:
            format_ = key_format_of(source, registry)
            key = _part(source.key_format, source.key, format_, source.window, is_key=True)
        columns, format_ = _written(source, registry)
        value = _part(source.value_format, columns, format_, is_key=False)
        return cls(key, value, source.window)

    def encode(self, given: Mapping[str, Any]) -> TopicRecord:
        """The record of a test's JSON. Raises ValueError."""
        headers: Headers = tuple(
            (one["KEY"], None if one.get("VALUE") is None else base64.b64decode(one["VALUE"], validate=True))
            for one in given.get("headers") or ()
        )
        key = self._encoded_key(given)
        value = given["value"].encode() if given.get("raw") else self._encoded_value(given.get("value"))
        return TopicRecord(given["topic"], key, value, given.get("timestamp") or 0, headers)

    def _encoded_key(self, given: Mapping[str, Any]) -> bytes | None:
        plain = given.get("key")
        if plain is None or self._key is None:
            return None
        if self._window is None:
            return self._key.encode(plain)
        window = given.get("window")
        if window is None:
            raise ValueError("its keys have windows, and the record has none")
        return self._key.encode(plain, Window(window["start"], window.get("end", window["start"])))

    def _encoded_value(self, plain: Any) -> bytes | None:
        if plain is not None and self._value is None:
            raise ValueError("no statement declares a stream or table over the topic")
        return None if self._value is None else self._value.encode(plain)

    def decode(self, record: TopicRecord) -> dict[str, Any]:
        """The record as a test's JSON has it."""
        found: dict[str, Any] = {"topic": record.topic, "key": None}
        if self._key is not None and record.key is not None:
            found |= _decoded_key(self._key, record.key, self._window)
        found["value"] = _decoded(self._value, record.value)
        found["timestamp"] = record.timestamp
        found["headers"] = [
            {"KEY": name, "VALUE": None if value is None else base64.b64encode(value).decode()}
            for name, value in record.headers
        ]
        return found


def _written(source: SourceInfo, registry: Registry) -> tuple[Columns, Format]:
    """The columns of values, and their format. A schema with a given id may have more fields than the result."""
    given, columns = source.value_format, source.value
    if given.schema_id is not None and given.is_wrapped is not False:
        columns = inferred_columns(given, registry, source.topic, is_key=False) or columns
    subject = f"{source.topic}-value"
    return columns, row_format(given, columns, registry=registry, subject=subject, is_key=False)


def _decoded_key(part: Part, data: bytes, window: WindowInfo | None) -> dict[str, Any]:
    if window is None:
        return {"key": _decoded(part, data)}
    row: Windowed = part.format.decode(data)
    kind = "session" if window.kind == SESSION else "time"
    told = {"start": row.window.start, "end": row.window.end, "type": kind}
    return {"key": part.plain(row.key), "window": told}


def _text_of(plain: Any) -> str:
    return str(plain).lower() if isinstance(plain, bool) else str(plain)


def _decoded(part: Part | None, data: bytes | None) -> Any:
    if data is None or part is None:
        return None
    if part.text is not None:
        return data.decode(errors="replace")
    return part.plain(part.format.decode(data))


def _part(
    description: FormatDescription,
    columns: Columns,
    format_: Format,
    window: WindowInfo | None = None,
    *,
    is_key: bool,
) -> Part:
    bare = description.name in ("KAFKA", "NONE") or is_bare(description, columns, is_key)
    text = row_format(description, columns, is_key=is_key) if description.name in TEXTS else None
    as_given = windowed(_JsonOfTest(), window) if description.name == "JSON" else None
    return Part(columns, format_, bare, text, as_given)


def texts_of_topic(
    given: Mapping[str, Any], registry: Registry, source: SourceInfo | None = None
) -> TopicTexts:
    """Those of a topic that a test describes with schemas, and over which a statement may have declared a source."""
    formats = (None, None) if source is None else (source.key_format, source.value_format)
    return TopicTexts(
        _described(given, "key", registry, formats[0]), _described(given, "value", registry, formats[1])
    )


def _described(
    given: Mapping[str, Any], part: str, registry: Registry, declared: FormatDescription | None
) -> Part | None:
    """The keys or values of a topic for which the test gives a schema; None without one. Records are written with this
    schema, also if a stream or table over the topic declares other columns.
    """
    topic, is_key = given["name"], part == "key"
    name, subject = format_of_topic(given, part), f"{topic}-{part}"
    registered = None if given.get(f"{part}Schema") is None else registry.latest(subject)
    if registered is None or name not in TYPES:
        return None
    description = FormatDescription(name, schema_id=registered.id)
    if declared is not None and declared.name == name:
        description = replace(description, full_name=declared.full_name, nullable=declared.nullable)
    try:
        columns = inferred_columns(description, registry, topic, is_key=is_key)
    except ValueError:
        # A schema that is not a record is the schema of the bare value.
        description = replace(description, is_wrapped=False)
        columns = inferred_columns(description, registry, topic, is_key=is_key)
    assert columns is not None, "there is a schema"
    format_ = row_format(description, columns, registry=registry, subject=subject, is_key=is_key)
    made = _part(description, columns, format_, is_key=is_key)
    if name == "AVRO":
        made = replace(made, defaults=defaults_of(registered.text, registered.references))
    return made


def source_over(catalogue: Catalogue, topic: str) -> SourceInfo | None:
    """The first stream or table over a topic."""
    return next((one for one in catalogue.sources.values() if one.topic == topic), None)
