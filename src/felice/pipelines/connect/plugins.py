"""The plugins of a worker by their names: connectors, converters, transformations and predicates.

Keeps true:  a plugin's module is imported only when its class is asked for.
             A configuration may name a plugin by Kafka's class, by a short form that Kafka knows, or by our short name.
Source:      Kafka Connect's `PluginUtils` for short forms: the class without its package, also without its suffix
             (`Json` for `JsonConverter`). A form that two plugins would have means neither.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.connect.connector.base import Connector
from felice.pipelines.connect.model.errors import ConfigError
from felice.pipelines.connect.transforms.transformation import KEY, VALUE

ENTRY_POINTS = "felice.connect"
"""The group of entry points of connectors in other packages. The name of the entry point is the short name."""


class Kind(Enum):
    """What a plugin is, by the names of Kafka's list of plugins. The second value is its suffix and interface."""

    SOURCE = "source", "Connector"
    SINK = "sink", "Connector"
    CONVERTER = "converter", "Converter"
    HEADER_CONVERTER = "header_converter", "HeaderConverter"
    TRANSFORMATION = "transformation", "Transformation"
    PREDICATE = "predicate", "Predicate"

    @property
    def text(self) -> str:
        """The name in the list of plugins."""
        return self.value[0]

    @property
    def interface(self) -> str:
        """The name of Kafka's interface, which is also the suffix that short forms leave out."""
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin. `name` is Kafka's class, or the Python class of a connector that Kafka does not have.

    `reference` is `module:class`. `part` is the part of a record of a transformation with two forms, else None.
    """

    kind: Kind
    name: str
    reference: str
    part: str | None = None
    short_name: str | None = None

    def load(self) -> Any:
        """The class. Raises `ConfigError` if it cannot be imported."""
        module, _, attribute = self.reference.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"the plugin {self.name} cannot be loaded: {error}") from error

    @property
    def short_forms(self) -> list[str]:
        """What a configuration may say instead of the name."""
        simple = self.name.rpartition(".")[2]
        forms = [simple.rpartition("$")[2]]
        if (found := simple.rfind(self.kind.interface)) > 0:
            forms.append(simple[:found])
        if self.short_name is not None:
            forms.append(self.short_name)
        return forms


_KAFKA = "org.apache.kafka.connect."
_OURS = "felice.pipelines.connect."
_CONVERTERS = {
    "storage.StringConverter": "converters.plain",
    "json.JsonConverter": "converters.json",
    **{
        f"converters.{name}Converter": "converters.plain"
        for name in ("Boolean", "ByteArray", "Double", "Float", "Integer", "Long", "Short")
    },
}
_OF_REGISTRY = {
    "avro.AvroConverter": "avro",
    "json.JsonSchemaConverter": "json_schema",
    "protobuf.ProtobufConverter": "protobuf",
}
"""Converters with a schema registry, which are Confluent's."""
_TRANSFORMATIONS = {
    "casting": ("Cast",),
    "fields": (
        "ExtractField",
        "Flatten",
        "HoistField",
        "InsertField",
        "MaskField",
        "ReplaceField",
    ),
    "headers": ("HeaderFrom",),
    "routing": ("SetSchemaMetadata",),
    "timestamps": ("TimestampConverter",),
}
"""Those that have a form for keys and a form for values."""
_WHOLE = {
    "fields": ("ValueToKey",),
    "headers": ("DropHeaders", "InsertHeader"),
    "routing": ("Filter", "RegexRouter", "TimestampRouter"),
}
_PREDICATES = ("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches")
_CONNECTORS = (
    ("file-sink", f"{_KAFKA}file.FileStreamSinkConnector", "file:FileStreamSink"),
    ("file-source", f"{_KAFKA}file.FileStreamSourceConnector", "file:FileStreamSource"),
    ("jdbc-sink", "io.confluent.connect.jdbc.JdbcSinkConnector", "jdbc.sink:JdbcSink"),
    ("jdbc-source", "io.confluent.connect.jdbc.JdbcSourceConnector", "jdbc.source:JdbcSource"),
    ("postgres-cdc", "io.debezium.connector.postgresql.PostgresConnector", "postgres.source:PostgresSource"),
    ("files-source", f"{_OURS}connectors.files.FilesSource", "files:FilesSource"),
    ("http-sink", "io.confluent.connect.http.HttpSinkConnector", "http:HttpSink"),
    (
        "elasticsearch-sink",
        "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector",
        "search.sink:ElasticsearchSink",
    ),
    ("s3-sink", "io.confluent.connect.s3.S3SinkConnector", "objects.sink:S3Sink"),
    ("hdfs-sink", "io.confluent.connect.hdfs.HdfsSinkConnector", "hdfs.sink:HdfsSink"),
    ("iceberg-sink", "org.apache.iceberg.connect.IcebergSinkConnector", "iceberg.sink:IcebergSink"),
    (
        "mirror-checkpoints",
        f"{_KAFKA}mirror.MirrorCheckpointConnector",
        "mirror.checkpoints:MirrorCheckpoint",
    ),
    ("mirror-heartbeats", f"{_KAFKA}mirror.MirrorHeartbeatConnector", "mirror.heartbeats:MirrorHeartbeat"),
    ("mirror-source", f"{_KAFKA}mirror.MirrorSourceConnector", "mirror.source:MirrorSource"),
)
"""Short name, class, and place in `connectors`. The short name of a sink ends in `-sink`."""


def _bundled() -> Iterator[Plugin]:
    for short_name, name, place in _CONNECTORS:
        kind = Kind.SINK if short_name.endswith("-sink") else Kind.SOURCE
        yield Plugin(kind, name, f"{_OURS}connectors.{place}", None, short_name)
    for kind in (Kind.CONVERTER, Kind.HEADER_CONVERTER):
        for name, module in _CONVERTERS.items():
            yield Plugin(kind, _KAFKA + name, f"{_OURS}{module}:{name.rpartition('.')[2]}")
    for name, module in _OF_REGISTRY.items():
        reference = f"{_OURS}converters.{module}:{name.rpartition('.')[2]}"
        yield Plugin(Kind.CONVERTER, f"io.confluent.connect.{name}", reference)
    simple = "SimpleHeaderConverter"
    yield Plugin(Kind.HEADER_CONVERTER, f"{_KAFKA}storage.{simple}", f"{_OURS}converters.headers:{simple}")
    for module, names in _TRANSFORMATIONS.items():
        for name in names:
            for part in (KEY, VALUE):
                full = f"{_KAFKA}transforms.{name}${part.capitalize()}"
                yield Plugin(Kind.TRANSFORMATION, full, f"{_OURS}transforms.{module}:{name}", part)
    for module, names in _WHOLE.items():
        for name in names:
            full = f"{_KAFKA}transforms.{name}"
            yield Plugin(Kind.TRANSFORMATION, full, f"{_OURS}transforms.{module}:{name}")
    changes = "io.debezium.transforms.ExtractNewRecordState"
    yield Plugin(Kind.TRANSFORMATION, changes, f"{_OURS}transforms.changes:ExtractNewRecordState")
    for name in _PREDICATES:
        full = f"{_KAFKA}transforms.predicates.{name}"
        yield Plugin(Kind.PREDICATE, full, f"{_OURS}transforms.predicates:{name}")


def _added(point: EntryPoint) -> Plugin:
    """The connector of an entry point. It is imported: only its class says whether it is a source or a sink."""
    try:
        found = point.load()
    except Exception as error:
        raise ConfigError(f"the connector {point.name} ({point.value}) cannot be loaded: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Connector)):
        raise ConfigError(f"the entry point {point.name} ({point.value}) is no connector class")
    kind = Kind.SOURCE if found.kind == Kind.SOURCE.text else Kind.SINK
    name = found.java_class or f"{found.__module__}.{found.__qualname__}"
    return Plugin(kind, name, point.value, None, point.name)


class Plugins:
    """All plugins of this Python: the bundled ones, and connectors of other packages."""

    def __init__(self, more: Sequence[Plugin] | None = None) -> None:
        """`more` are used instead of the connectors of other packages. Raises `ConfigError` for a broken one."""
        added = map(_added, entry_points(group=ENTRY_POINTS)) if more is None else more
        self._all: list[Plugin] = sorted((*_bundled(), *added), key=lambda one: (one.kind.text, one.name))
        by_name: dict[str, set[str]] = {}
        for one in self._all:
            for form in one.short_forms:
                by_name.setdefault(form, set()).add(one.name)
        self._names = {form: next(iter(names)) for form, names in by_name.items() if len(names) == 1}
        self._names.update((one.name, one.name) for one in self._all)
        self._outer = Counter(name.rpartition("$")[0] for name in {one.name for one in self._all})

    def __iter__(self) -> Iterator[Plugin]:
        return iter(self._all)

    def of(self, *kinds: Kind) -> list[Plugin]:
        """The plugins of these kinds, by kind and name."""
        return [one for one in self._all if one.kind in kinds]

    def class_name(self, option: str, text: str) -> str:
        """The full name of the class that an option names. Raises `ConfigError` with Kafka's text."""
        if (found := self._names.get(text)) is not None or (text and self._outer.get(text)):
            return found or text
        raise ConfigError(
            f"Invalid value {text} for configuration {option}: Class {text} could not be found."
        )

    def get(self, name: str, *kinds: Kind) -> Plugin:
        """The plugin with this name or short form. Raises `ConfigError` with Kafka's text."""
        full = self._names.get(name, name)
        for one in self._all:
            if one.name == full and one.kind in kinds:
                return one
        forms = [one.name for one in self.of(*kinds) if one.name.rpartition("$")[0] == full]
        if forms:
            raise ConfigError(
                f"This class is abstract and cannot be created. Did you mean {', '.join(forms)}?"
            )
        raise ConfigError(f"Class class {full} does not implement the {kinds[0].interface} interface")
