"""Responses and rows for requests and items without permission, derived from the schemas of their messages.

As in Kafka, the error is at one level: in the response if its version has a field for the error, otherwise in the row
of each item, otherwise in the row of each partition of the item. Rows copy the fields that identify their item, such as
its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import TypeAlias, TypeVar, cast

from felice.protocol.api import TypedApi
from felice.protocol.error_codes import ERROR_CODES
from felice.protocol.errors import ErrorCode
from felice.protocol.schema import Field, FieldType, schema_of

Q = TypeVar("Q")
A = TypeVar("A")
Item = TypeVar("Item")
Row = TypeVar("Row")
Refuse: TypeAlias = Callable[[Item, ErrorCode], Row]
"""Makes the row of a refused item."""
Fields: TypeAlias = Mapping[str, object]
"""Fields that Kafka sets to other values than their defaults, at each level that has such fields."""
NO_FIELDS: Fields = MappingProxyType({})
_Pairs: TypeAlias = tuple[tuple[str, object], ...]
_Nested: TypeAlias = tuple[str, Callable[[object], Iterable[object] | None], Refuse[object, object]]

_NAMES = {
    *("name", "topic", "topic_id", "group_id", "transactional_id", "producer_id", "key", "entity"),
    *("resource_type", "resource_name", "partition_index", "partition_id", "partition", "index"),
}


def refused(
    api: TypedApi[Q, A],
    request: Q,
    code: ErrorCode,
    version: int,
    fields: Fields = NO_FIELDS,
    *,
    has_rows: bool = False,
) -> A:
    """The refusal of a request. With `has_rows` the refusal has the rows of the items, too, besides its error."""
    item, pairs = FieldType("struct", api.request), tuple(fields.items())
    return cast(A, _refuse(item, cast(type, api.response), version, pairs, has_rows)(request, code))


def row_of(item: type[Item], row: type[Row], version: int, fields: Fields = NO_FIELDS) -> Refuse[Item, Row]:
    """Returns a function that makes the row of a refused item."""
    refuse = _refuse(FieldType("struct", item), cast(type, row), version, tuple(fields.items()))
    return cast("Refuse[Item, Row]", refuse)


def row_between(
    items: Field, rows: Field, version: int, fields: Fields = NO_FIELDS
) -> Refuse[object, object]:
    """Returns a function that makes a row in the list `rows` for a refused item of the list `items`."""
    return _refuse(_element(items), class_in(rows), version, tuple(fields.items()))


def items_in(message: type, version: int) -> Field:
    """The list of a request's items, or of an item's partitions."""
    return next(_lists(message, version))


def rows_in(message: type, version: int) -> Field:
    """The list of a response's rows, or of a row's partitions."""
    return next(field for field in _lists(message, version) if _element(field).struct is not None)


def codes_in(row: type, version: int) -> list[str]:
    """The fields of a response or row that have its error code."""
    return [
        field.name
        for field in schema_of(row).fields
        if field.name in ERROR_CODES and version in field.versions
    ]


def class_in(field: Field) -> type:
    """The class of the elements of a list."""
    element = _element(field)
    return element.struct or (str if element.kind == "string" else int)


def _element(field: Field) -> FieldType:
    return cast(FieldType, field.type.element)


def _lists(message: type, version: int) -> Iterator[Field]:
    return (
        field
        for field in schema_of(message).fields
        if field.type.kind == "array" and field.tag is None and version in field.versions
    )


@cache
def _refuse(
    item: FieldType, row: type, version: int, fields: _Pairs, has_rows: bool = False
) -> Refuse[object, object]:
    declared = {field.name: field for field in schema_of(row).fields}
    codes = codes_in(row, version)
    has_message = "error_message" in declared
    fixed = {name: value for name, value in fields if name in declared}
    names = [] if schema_of(row).kind == "response" else _names(item, declared)
    nested = _nested(item, row, version, fields) if has_rows or not codes else []

    def refuse(refused: object, code: ErrorCode) -> object:
        values: dict[str, object] = dict.fromkeys(codes, code)
        if has_message:
            values["error_message"] = code.message
        for name, get in names:
            values[name] = get(refused)
        for name, items, refuse_each in nested:
            values[name] = [refuse_each(one, code) for one in items(refused) or ()]
        return row(**{**values, **fixed})

    return refuse


def _names(item: FieldType, declared: Mapping[str, Field]) -> list[tuple[str, Callable[[object], object]]]:
    """The fields of a row that identify its item, and how to get them from the item. The item may itself be a name."""
    if item.struct is None:
        return [(name, _itself) for name in declared if name in _NAMES and declared[name].type == item]
    return [
        (field.name, attrgetter(field.name))
        for field in schema_of(item.struct).fields
        if field.name in _NAMES and field.name in declared and declared[field.name].type == field.type
    ]


def _itself(item: object) -> object:
    return item


def _nested(item: FieldType, row: type, version: int, fields: _Pairs) -> list[_Nested]:
    """The list of rows inside a row, and how they are made from the list inside the row's item."""
    if item.struct is None:
        return []
    items, rows = items_in(item.struct, version), rows_in(row, version)
    return [(rows.name, attrgetter(items.name), _refuse(_element(items), class_in(rows), version, fields))]
