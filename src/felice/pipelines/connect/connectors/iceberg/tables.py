"""A table: its rows that wait, and their commit with the offsets that the table then holds.

Keeps true:  a commit has rows and offsets, or neither. A row whose offset the table has is not added again.
             Offsets that another task has changed since they were read end this task: it was thought lost.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.transforms import parse_transform

from felice.pipelines.connect.connector.contexts import TopicPartition
from felice.pipelines.connect.connectors.iceberg.failures import failures
from felice.pipelines.connect.connectors.iceberg.options import CATALOG, OPTIONS, partition_fields, routes
from felice.pipelines.connect.connectors.objects.arrow import ICEBERG, arrow_field, arrow_value
from felice.pipelines.connect.model.errors import ConfigError, ConnectError, DataError
from felice.pipelines.connect.model.record import SinkRecord
from felice.pipelines.connect.model.schema import Schema, Struct

_log = logging.getLogger("felice.connect.iceberg")

_OFFSET = "felice.offset."
_ATTEMPTS = 10


def open_catalog(config: Mapping[str, str]) -> Catalog:
    """The catalog of a configuration. Raises `ConfigError`."""
    given = {name[len(CATALOG) :]: value for name, value in config.items() if name.startswith(CATALOG)}
    try:
        return load_catalog(config.get("iceberg.catalog", "iceberg"), **given)
    except ValueError as error:
        raise ConfigError(f"the catalog cannot be used: {error}") from error


def set_offsets(config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> None:
    """Sets the offsets in all tables of a configuration; None is a reset. Raises `ConnectError`."""
    if config.get("iceberg.tables.dynamic-enabled", "").lower() == "true":
        raise ConnectError(
            "the offsets are in the properties felice.offset.… of tables that the records name: change them there"
        )
    options = OPTIONS.parse(dict(config))
    prefix = f"{_OFFSET}{config.get('name', 'sink')}."
    with failures():
        catalog = open_catalog(config)
        for name in {*options["iceberg.tables"], *routes(config)}:
            if not catalog.table_exists(name):
                continue
            with catalog.load_table(name).transaction() as change:
                given = {f"{prefix}{topic}.{number}": offset for (topic, number), offset in offsets.items()}
                kept = {key: str(offset) for key, offset in given.items() if offset is not None}
                if kept:
                    change.set_properties(kept)
                gone = [key for key in given if key not in kept and key in change.table_metadata.properties]
                if gone:
                    change.remove_properties(*gone)


class Table:
    """A table that a task writes to."""

    def __init__(
        self, catalog: Catalog, name: str, options: Mapping[str, Any], connector: str, partition_by: str
    ) -> None:
        self.name = name
        self._catalog = catalog
        self._options = options
        self._prefix = f"{_OFFSET}{connector}."
        self._partition_by = partition_by
        self._table: Any = None
        self._offsets: dict[str, int] = {}
        """The next offsets of partitions, as the table has them."""
        self._ends: dict[str, int] = {}
        """The same, with the rows that wait."""
        self._rows: list[tuple[SinkRecord, dict[str, Any]]] = []
        self._refused: list[tuple[SinkRecord, DataError]] = []
        self._columns: list[pyarrow.Table] = []
        self._schemas: set[Schema] = set()

    @property
    def size(self) -> int:
        """About how many bytes wait."""
        return sum(int(one.nbytes) for one in self._columns)

    def add(self, record: SinkRecord) -> None:
        """Adds a record's row, if the table does not have it. Raises `DataError` for one that it cannot hold."""
        self._load(record)
        at = self._property(record.place)
        if record.offset < self._ends.get(at, self._offsets.get(at, 0)):
            return
        # Without a schema, an object is a struct and no map.
        row = arrow_value(record.value) if isinstance(record.value, Struct) else record.value
        if not isinstance(row, dict):
            raise DataError(f"a row needs an object, and the value is a {type(record.value).__name__}")
        self._follow(record)
        self._rows.append((record, row))
        self._ends[at] = record.offset + 1

    def settle(self) -> list[tuple[SinkRecord, DataError]]:
        """Makes columns of the rows that were added. The records that the table cannot hold, with their errors."""
        self._to_columns()
        found, self._refused = self._refused, []
        return found

    def commit(self) -> None:
        """Adds the rows that wait to the table, with their offsets. Raises `ConnectError`."""
        if not self._ends:
            return
        self._to_columns()
        for attempt in range(1, _ATTEMPTS + 1):
            # The library must not repeat a commit by itself: the offsets are to be compared before each attempt.
            self._table.metadata.properties["commit.retry.num-retries"] = "0"
            schema = self._table.schema().as_arrow()
            try:
                with self._table.transaction() as change:
                    if self._columns:  # else the table could hold none of the rows
                        change.append(pyarrow.concat_tables([_filled(one, schema) for one in self._columns]))
                    change.set_properties({name: str(offset) for name, offset in self._ends.items()})
                break
            except CommitFailedException as error:
                if attempt == _ATTEMPTS:
                    raise ConnectError(f"the table {self.name} changes too often: {error}") from error
                _log.info("the table %s has changed, its commit is made again", self.name)
                self._read_again()
        self._offsets.update(self._ends)
        self.forget()

    def forget(self) -> None:
        """Gives up the rows that wait: they are read again."""
        self._rows, self._columns, self._ends = [], [], {}

    def _read_again(self) -> None:
        before = self._offsets
        self._table.refresh()
        self._offsets = self._stored()
        mine = set(self._ends)
        if any(self._offsets.get(one) != before.get(one) for one in mine):
            raise ConnectError(
                f"another task has written rows of the same partitions to the table {self.name}"
            )

    def _stored(self) -> dict[str, int]:
        given = self._table.properties
        return {name: int(text) for name, text in given.items() if name.startswith(self._prefix)}

    def _property(self, at: TopicPartition) -> str:
        return f"{self._prefix}{at[0]}.{at[1]}"

    def _to_columns(self) -> None:
        given, self._rows = self._rows, []
        if not given:
            return
        try:
            self._columns.append(self._columns_of([row for _, row in given]))
        except DataError:
            for record, row in given:
                try:
                    self._columns.append(self._columns_of([row]))
                except DataError as error:
                    self._refused.append((record, error))

    def _columns_of(self, rows: list[dict[str, Any]]) -> pyarrow.Table:
        schema = self._table.schema().as_arrow()
        try:
            found = pyarrow.Table.from_pylist(rows, schema=schema)
        except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"the value does not fit the table {self.name}: {error}") from error
        for field, column in zip(schema, found.columns, strict=True):
            if not field.nullable and column.null_count:
                raise DataError(f"the column {field.name} of the table {self.name} needs a value")
        return found

    # The table and its schema

    def _load(self, record: SinkRecord) -> None:
        if self._table is not None:
            return
        try:
            self._table = self._catalog.load_table(self.name)
        except NoSuchTableError:
            if not self._options["iceberg.tables.auto-create-enabled"]:
                raise ConnectError(
                    f"the table {self.name} is missing, and iceberg.tables.auto-create-enabled is false"
                ) from None
            self._table = self._created(record)
        self._offsets = self._stored()

    def _created(self, record: SinkRecord) -> Any:
        schema = self._arrow_schema(record)
        if not len(schema):
            raise DataError(f"the table {self.name} cannot be made of a value without members")
        namespace = self.name.rpartition(".")[0]
        if namespace:
            with suppress(NamespaceAlreadyExistsError):
                self._catalog.create_namespace(namespace)
        try:
            with (
                self._catalog.create_table_transaction(self.name, schema) as made,
                made.update_spec() as spec,
            ):
                for column, transform, number in partition_fields(self._partition_by):
                    text = transform if number is None else f"{transform}[{number}]"
                    spec.add_field(column, parse_transform(text))
        except TableAlreadyExistsError:  # another task was faster
            pass
        except ValueError as error:
            raise ConnectError(f"the table {self.name} cannot be made: {error}") from error
        _log.info("the table %s was made", self.name)
        return self._catalog.load_table(self.name)

    def _follow(self, record: SinkRecord) -> None:
        """Gives the table the members that it lacks, if it may change."""
        if not self._options["iceberg.tables.evolve-schema-enabled"]:
            return
        if record.value_schema is not None:
            if record.value_schema in self._schemas:
                return
            self._schemas.add(record.value_schema)
        given = self._arrow_schema(record)
        known = self._table.schema().as_arrow().names
        if set(given.names) <= set(known):
            return
        # A column that is added may be null: older rows have no value.
        added = pyarrow.schema([one.with_nullable(True) for one in given if one.name not in known])
        self._to_columns()
        with self._table.update_schema() as change:
            change.union_by_name(added)
        _log.info("the table %s has got the columns %s", self.name, ", ".join(added.names))

    def _arrow_schema(self, record: SinkRecord) -> pyarrow.Schema:
        if isinstance(record.value, Struct):
            fields = [arrow_field(one.name, one.schema, ICEBERG) for one in record.value.schema.fields]
        else:
            try:
                found = pyarrow.Table.from_pylist([record.value]).schema
            except (pyarrow.ArrowException, TypeError, AttributeError) as error:
                raise DataError(f"the value gives no columns: {error}") from error
            fields = [one for one in found if not pyarrow.types.is_null(one.type)]
        if self._options["iceberg.tables.schema-force-optional"]:
            fields = [one.with_nullable(True) for one in fields]
        return pyarrow.schema(fields)


def _filled(table: pyarrow.Table, schema: pyarrow.Schema) -> pyarrow.Table:
    """The rows with the columns that the table has got since they were made."""
    columns = [
        table.column(one.name) if one.name in table.column_names else pyarrow.nulls(table.num_rows, one.type)
        for one in schema
    ]
    return pyarrow.Table.from_arrays(columns, schema=schema)
