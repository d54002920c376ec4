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

from felice.pipelines.sql.rows.columns import Columns, types_in
from felice.pipelines.sql.rows.delimited import DEFAULT_DELIMITER, DelimitedFormat, delimiter_of
from felice.pipelines.sql.rows.description import (
    FORMATS,
    Features,
    FormatDescription,
    check,
    features_of,
    is_bare,
    is_bare_schema,
    key_schema_name,
)
from felice.pipelines.sql.rows.json import BareJsonFormat, JsonFormat
from felice.pipelines.sql.rows.kafka import KafkaFormat
from felice.pipelines.sql.rows.nothing import NoneFormat
from felice.pipelines.sql.rows.packed import tuples
from felice.pipelines.sql.rows.registry import RegisteredText, Registry
from felice.pipelines.sql.types import Map, SqlType, Struct
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
    "key_schema_name",
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
    if not columns and (is_key or description.name == "NONE"):
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
    # A name that is not written must not make formats differ.
    has_name = not bare or any(isinstance(one, Struct | Map) for one in types_in(columns[0][1]))
    full_name = description.full_name if has_name or description.name != "AVRO" else None
    parts = (columns, registry, subject, bare, full_name, description.schema_id)
    if description.name == "AVRO":
        return AvroFormat(*parts)
    return (
        JsonSchemaFormat(*parts)
        if description.name == "JSON_SR"
        else ProtobufFormat(*parts, description.nullable)
    )


def columns_of_schema(description: FormatDescription, schema: RegisteredText, *, is_key: bool) -> Columns:
    """The columns that a schema of a registry describes.

    Names are in capitals, but as they are if the description has the schema's id. Where single columns are bare, which
    they are in keys, the schema is that of one column, ROWKEY or ROWVAL. Raises ValueError for a schema that cannot be
    used.
    """
    try:
        type_ = _type_of_schema(description, schema)
    except (AttributeError, LookupError, RecursionError, TypeError) as error:
        raise ValueError(f"the schema {schema.id} is damaged: {error}") from error
    if type_ is None:
        raise ValueError("Schema does not include any columns with types that ksqlDB supports")
    if is_bare_schema(description, is_key):
        return (("ROWKEY" if is_key else "ROWVAL", type_),)
    if not isinstance(type_, Struct):
        raise ValueError(
            "Schema returned from schema registry is anonymous type. To use this schema with ksqlDB, set "
            "'WRAP_SINGLE_VALUE=false' in the WITH clause properties."
        )
    return type_.fields


def _type_of_schema(description: FormatDescription, schema: RegisteredText) -> SqlType | None:
    fold: Callable[[str], str] = str.upper if description.schema_id is None else str
    match description.name:
        case "AVRO":
            from felice.pipelines.sql.rows import avro_schema

            return avro_schema.type_of_schema(schema.text, schema.references, fold)
        case "JSON_SR":
            from felice.pipelines.sql.rows import json_schema

            return json_schema.type_of_schema(schema.text, schema.references, fold)
        case "PROTOBUF":
            from felice.pipelines.sql.rows import protobuf_schema

            names = description.full_name, description.nullable
            return protobuf_schema.type_of_schema(schema.text, schema.references, fold, *names)
        case name:
            raise ValueError(f"the format {name} has no schemas in a registry")
