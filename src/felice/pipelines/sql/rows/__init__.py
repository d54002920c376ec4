"""Formats of rows: how the columns of keys and values become bytes.

columns             what all formats have in common
kafka, nothing, delimited, json, avro, json_schema, protobuf
                    the formats; `*_schema`: schemas of a registry to columns and back
packed              MessagePack, for state and repartitions
description         what a statement says of a format, and what each format can do
registry            schemas of a registry
plain               values as JSON of tests and answers
"""

from __future__ import annotations

from collections.abc import Callable

from felice.pipelines.sql.rows.columns import Columns
from felice.pipelines.sql.rows.delimited import DEFAULT_DELIMITER, DelimitedFormat, delimiter_of
from felice.pipelines.sql.rows.description import (
    FORMATS,
    Features,
    FormatDescription,
    check,
    features_of,
    is_bare,
)
from felice.pipelines.sql.rows.json import BareJsonFormat, JsonFormat
from felice.pipelines.sql.rows.kafka import KafkaFormat
from felice.pipelines.sql.rows.nothing import NoneFormat
from felice.pipelines.sql.rows.packed import tuples
from felice.pipelines.sql.rows.registry import RegisteredText, Registry
from felice.pipelines.streams.formats import Format

__all__ = [
    "FORMATS",
    "Columns",
    "Features",
    "FormatDescription",
    "check",
    "columns_of_schema",
    "features_of",
    "is_bare",
    "row_format",
    "tuples",
]


def row_format(
    description: FormatDescription,
    columns: Columns,
    *,
    registry: Registry | None = None,
    subject: str | None = None,
    is_key: bool,
) -> Format:
    """The format of rows of these columns.

    `registry` is needed by formats with schemas. `subject` is where theirs is registered: without it, that of the topic
    where the format is used. Raises ValueError for what the format cannot hold.
    """
    check(description, columns, is_key)
    if is_key and not columns:
        return NoneFormat(columns)
    bare = is_bare(description, columns, is_key)
    match description.name:
        case "KAFKA":
            return KafkaFormat(columns)
        case "JSON":
            return BareJsonFormat(columns) if bare else JsonFormat(columns)
        case "DELIMITED":
            return DelimitedFormat(columns, delimiter_of(description.delimiter or DEFAULT_DELIMITER))
        case "PROTOBUF_NOSR":
            from felice.pipelines.sql.rows.protobuf import ProtobufNoSrFormat

            return ProtobufNoSrFormat(columns, description.nullable)
        case _:
            return _with_schema(description, columns, registry, subject, bare)


def _with_schema(
    description: FormatDescription,
    columns: Columns,
    registry: Registry | None,
    subject: str | None,
    bare: bool,
) -> Format:
    from felice.pipelines.sql.rows.avro import AvroFormat
    from felice.pipelines.sql.rows.json_schema import JsonSchemaFormat
    from felice.pipelines.sql.rows.protobuf import ProtobufFormat

    if registry is None:
        raise ValueError(f"the format {description.name} needs a schema registry")
    parts = (columns, registry, subject, bare, description.full_name, description.schema_id)
    if description.name == "AVRO":
        return AvroFormat(*parts)
    return (
        JsonSchemaFormat(*parts)
        if description.name == "JSON_SR"
        else ProtobufFormat(*parts, description.nullable)
    )


def columns_of_schema(description: FormatDescription, schema: RegisteredText, *, is_key: bool) -> Columns:
    """The columns that a schema of a registry describes.

    Names are in capitals, but as they are if the description has the schema's id. A schema that is no record is one
    column, ROWKEY or ROWVAL; so is a record of a description that is not wrapped. Raises ValueError for a schema that
    cannot be used.
    """
    fold: Callable[[str], str] = str.upper if description.schema_id is None else str
    single = fold("ROWKEY" if is_key else "ROWVAL")
    if description.name == "PROTOBUF":
        from felice.pipelines.sql.rows import protobuf_schema

        return protobuf_schema.columns_of(schema.text, schema.references, fold, description.full_name)
    from felice.pipelines.sql.rows import avro_schema, json_schema

    module = {"AVRO": avro_schema, "JSON_SR": json_schema}.get(description.name)
    if module is None:
        raise ValueError(f"the format {description.name} has no schemas in a registry")
    bare = description.is_wrapped is False
    return module.columns_of(schema.text, schema.references, fold, single, bare)  # type: ignore[no-any-return]
