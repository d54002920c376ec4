"""Files of records: JSON lines, Avro, Parquet and bytes.

Keeps true:  a file grows in memory up to `IN_MEMORY` bytes, and on the disk beyond.
             The same records make the same bytes, so that a repetition replaces an object by itself.
"""

from __future__ import annotations

import gzip
import hashlib
import tempfile
from collections.abc import Callable, Mapping
from typing import IO, Any

from felice.pipelines.connect.connectors.objects.arrow import PARQUET, arrow_field, arrow_value
from felice.pipelines.connect.converters.json import JsonConverter
from felice.pipelines.connect.converters.plain import printed
from felice.pipelines.connect.model.errors import ConnectError, DataError
from felice.pipelines.connect.model.record import SinkRecord
from felice.pipelines.connect.model.schema import (
    STRUCT,
    Schema,
)

IN_MEMORY = 8 << 20
_ROWS = 10_000
"""The records of one row group of Parquet, and of one block of Avro at most."""


class File:
    """A file that is written. `extension` is the end of its name."""

    extension: str

    def __init__(self, options: Mapping[str, Any], schema: Schema | None) -> None:
        self._options = options
        self._schema = schema
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 - `close` does it

    def write(self, record: SinkRecord) -> None:
        """Adds a record. Raises `DataError` for one that the format cannot hold: the file is as before."""
        raise NotImplementedError

    def finish(self) -> IO[bytes]:
        """The whole file, from its beginning."""
        self._end()
        self._file.seek(0)
        return self._file

    def close(self) -> None:
        """Gives the file up."""
        self._file.close()

    def _end(self) -> None:
        """Writes what is left."""


class _Lines(File):
    """A file that may be compressed, record by record."""

    def __init__(self, options: Mapping[str, Any], schema: Schema | None) -> None:
        super().__init__(options, schema)
        self._out: IO[bytes] = self._file
        if options.get("s3.compression.type") == "gzip":
            level = options["s3.compression.level"]
            # Without a time, so that the same records make the same bytes.
            self._out = gzip.GzipFile("", "wb", 9 if level < 0 else level, self._file, mtime=0)  # type: ignore[assignment]

    def _end(self) -> None:
        if self._out is not self._file:
            self._out.close()


class JsonFile(_Lines):
    """A JSON text in each line, without schemas."""

    extension = ".json"

    def __init__(self, options: Mapping[str, Any], schema: Schema | None) -> None:
        super().__init__(options, schema)
        given = {"schemas.enable": "false", "decimal.format": options["json.decimal.format"]}
        self._converter = JsonConverter(JsonConverter.definitions.parse(given), is_key=False)
        self.extension = ".json.gz" if self._out is not self._file else ".json"

    def write(self, record: SinkRecord) -> None:
        """As `File.write`."""
        data = self._converter.to_bytes(record.topic, record.value_schema, record.value)
        self._out.write((data or b"null") + b"\n")


class BytesFile(_Lines):
    """The bytes of each record, with a separator after it."""

    def __init__(self, options: Mapping[str, Any], schema: Schema | None) -> None:
        super().__init__(options, schema)
        self._separator: bytes = options["format.bytearray.separator"].encode()
        ending = options["format.bytearray.extension"]
        self.extension = f"{ending}.gz" if self._out is not self._file else ending

    def write(self, record: SinkRecord) -> None:
        """As `File.write`."""
        if not isinstance(record.value, bytes):
            raise DataError("ByteArrayFormat needs values of bytes; use ByteArrayConverter")
        self._out.write(record.value + self._separator)


class TextFile(_Lines):
    """The text of each record in a line."""

    extension = ".txt"

    def write(self, record: SinkRecord) -> None:
        """As `File.write`."""
        self._out.write(printed(record.value).encode() + b"\n")


class AvroFile(File):
    """A container of Avro."""

    extension = ".avro"

    def __init__(self, options: Mapping[str, Any], schema: Schema | None) -> None:
        from fastavro import parse_schema
        from fastavro.write import Writer

        from felice.pipelines.connect.converters.avro_schemas import avro_schema, avro_value

        if schema is None:
            raise DataError("AvroFormat needs values with schemas")
        made: Any = avro_schema(schema)
        super().__init__(options, schema)
        self._value = avro_value
        # The marker between blocks is of the schema, not random, so that the same records make the same bytes.
        marker = f"{_hash_of(schema):016x}"[:16].encode()
        self._writer = Writer(
            self._file, parse_schema(_plain(made)), options["avro.codec"], sync_marker=marker
        )

    def write(self, record: SinkRecord) -> None:
        """As `File.write`."""
        assert self._schema is not None
        try:
            self._writer.write(self._value(self._schema, record.value))
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"the value cannot be written as Avro: {error}") from error

    def _end(self) -> None:
        self._writer.flush()


def _plain(avro: Any) -> Any:
    """The schema, marked so that fastavro takes the plain values below logical types."""
    from felice.pipelines.connect.converters.avro import stripped

    return stripped(avro)


def _hash_of(schema: Schema) -> int:
    """A number for a schema that is the same in every process."""
    return int.from_bytes(hashlib.sha256(repr(schema).encode()).digest()[:8], "big")


class ParquetFile(File):
    """A file of Parquet, with a row group for each `_ROWS` records."""

    def __init__(self, options: Mapping[str, Any], schema: Schema | None) -> None:
        import pyarrow
        from pyarrow import parquet

        if schema is None or schema.type != STRUCT:
            raise DataError("ParquetFormat needs values that are structs with a schema")
        super().__init__(options, schema)
        codec = options["parquet.codec"]
        self.extension = ".parquet" if codec == "none" else f".{'gz' if codec == 'gzip' else codec}.parquet"
        self._arrow = pyarrow
        self._columns = pyarrow.schema([arrow_field(one.name, one.schema, PARQUET) for one in schema.fields])
        self._writer = parquet.ParquetWriter(
            self._file, self._columns, compression=codec.upper() if codec != "none" else None
        )
        self._rows: list[dict[str, Any]] = []

    def write(self, record: SinkRecord) -> None:
        """As `File.write`."""
        assert self._schema is not None
        self._schema.check(record.value)
        self._rows.append(arrow_value(record.value))
        if len(self._rows) >= _ROWS:
            self._write_rows()

    def _write_rows(self) -> None:
        table = self._arrow.Table.from_pylist(self._rows, schema=self._columns)
        self._writer.write_table(table)
        self._rows = []

    def close(self) -> None:
        """As `File.close`."""
        self._writer.close()  # it writes when it is collected, else
        super().close()

    def _end(self) -> None:
        if self._rows:
            self._write_rows()
        self._writer.close()


_FILES: Mapping[str, Callable[[Mapping[str, Any], Schema | None], File]] = {
    "JsonFormat": JsonFile,
    "AvroFormat": AvroFile,
    "ParquetFormat": ParquetFile,
    "ByteArrayFormat": BytesFile,
    "StringFormat": TextFile,
}
"""By the names of Confluent's classes, without their packages, which each sink has of its own."""


def new_file(options: Mapping[str, Any], schema: Schema | None) -> File:
    """A file of the format that the options name. Raises `DataError` for a schema that it cannot hold."""
    try:
        return _FILES[options["format.class"].rpartition(".")[2]](options, schema)
    except ModuleNotFoundError as error:
        raise ConnectError(f"{error.name} is not installed: pip install 'felice[connect-s3]'") from error
