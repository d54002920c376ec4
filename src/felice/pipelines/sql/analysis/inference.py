"""Columns from the schemas of a registry."""

from __future__ import annotations

from felice.pipelines.sql.rows import Columns, FormatDescription, columns_of_schema
from felice.pipelines.sql.rows.registry import Registry

TYPES = {"AVRO": "AVRO", "JSON_SR": "JSON", "PROTOBUF": "PROTOBUF"}
"""The type of schemas, as registries call it, by the name of the format."""


def inferred_columns(
    given: FormatDescription, registry: Registry, topic: str, *, is_key: bool
) -> Columns | None:
    """The columns of a topic's keys or values: of the schema with the format's id, or else the newest one; None if
    there is none. Raises ValueError for a schema that cannot be used.
    """
    if given.schema_id is not None:
        found = registry.by_id(given.schema_id)
    else:
        newest = registry.latest(f"{topic}-{'key' if is_key else 'value'}")
        if newest is None:
            return None
        found = newest
    if found.type != TYPES[given.name]:
        wanted = TYPES[given.name]
        raise ValueError(
            f"the schema {found.id} is of type {found.type}, and the format {given.name} needs {wanted}"
        )
    return columns_of_schema(given, found, is_key=is_key)
