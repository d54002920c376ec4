"""Parses types: `DECIMAL(4, 2)`, `ARRAY<STRING>`, `MAP<STRING, INT>`, `STRUCT<a INT, b STRING>`."""

from __future__ import annotations

from felice.pipelines.sql.syntax.cursor import Cursor
from felice.pipelines.sql.syntax.tree import ArrayType, MapType, StructType, Type, TypeName, placed


def type_at(cursor: Cursor) -> Type:
    """The type that comes next."""
    position = cursor.position
    with cursor.nested():
        found: Type = placed(_first(cursor), position)
        # As in older dialects: `INT ARRAY`.
        while cursor.take_words("ARRAY"):
            found = placed(ArrayType(found), position)
        return found


def _first(cursor: Cursor) -> Type:
    if cursor.after_next().is_sign("<", "<>"):
        if cursor.take_words("ARRAY"):
            return ArrayType(_in_angles(cursor))
        if cursor.take_words("MAP"):
            return _map(cursor)
        if cursor.take_words("STRUCT"):
            return _struct(cursor)
    name = cursor.name("a type")
    if not cursor.next.is_sign("("):
        return TypeName(name)
    if cursor.after_next().is_word("STRING") and cursor.after_next(2).is_sign(")"):
        # VARCHAR(STRING) is how ksqlDB itself shows STRING.
        cursor.in_parentheses(cursor.take)
        return TypeName(name)
    return TypeName(name, cursor.in_parentheses(cursor.integer))


def _in_angles(cursor: Cursor) -> Type:
    cursor.expect_sign("<")
    found = type_at(cursor)
    cursor.expect_sign(">")
    return found


def _map(cursor: Cursor) -> MapType:
    cursor.expect_sign("<")
    key = type_at(cursor)
    cursor.expect_sign(",")
    value = type_at(cursor)
    cursor.expect_sign(">")
    return MapType(key, value)


def _struct(cursor: Cursor) -> StructType:
    if cursor.take_sign("<>"):
        return StructType(())
    cursor.expect_sign("<")
    fields = (
        () if cursor.next.is_sign(">") else cursor.list_of(lambda: (cursor.name("a field"), type_at(cursor)))
    )
    cursor.expect_sign(">")
    return StructType(fields)
