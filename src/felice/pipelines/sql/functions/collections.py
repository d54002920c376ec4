"""Functions of arrays, and ELT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from felice.pipelines.sql.expressions.texts import NULL, text_function
from felice.pipelines.sql.functions.ordering import (
    distinct,
    element_type,
    equality_key,
    order_of,
    ordered_element,
)
from felice.pipelines.sql.functions.table import scalar
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    STRING,
    Array,
    Decimal,
    SqlType,
    text_of,
)

Values = list[Any]


@scalar(
    "ARRAY_CONCAT(left ARRAY<T>, right ARRAY<T>) -> ARRAY<T>",
    "The elements of the first array, then those of the second. A null array counts as an empty one; two of them "
    "give null.",
    ("ARRAY_CONCAT(ARRAY[1, 2], ARRAY[2])", "ARRAY[1, 2, 2]"),
    takes_nulls=True,
)
def array_concat(left: Values | None, right: Values | None) -> Values | None:
    """Both arrays as one."""
    return None if left is None and right is None else [*(left or ()), *(right or ())]


@scalar(
    "ARRAY_CONTAINS(array ARRAY<T>, value T) -> BOOLEAN",
    "Whether a value, which may be null, is an element. False for a null array.",
    ("ARRAY_CONTAINS(ARRAY['a', 'b'], 'b')", "TRUE"),
    takes_nulls=True,
)
def array_contains(array: Values | None, value: Any) -> bool:
    """Whether the value is in the array."""
    return array is not None and equality_key(value) in map(equality_key, array)


@scalar(
    "ARRAY_DISTINCT(array ARRAY<T>) -> ARRAY<T>",
    "The elements without those that occur earlier.",
    ("ARRAY_DISTINCT(ARRAY[3, 1, 3, 2])", "ARRAY[3, 1, 2]"),
)
def array_distinct(array: Values) -> Values:
    """Each value once."""
    return distinct(array)


@scalar(
    "ARRAY_EXCEPT(array ARRAY<T>, exceptions ARRAY<T>) -> ARRAY<T>",
    "The different elements of the first array that are not in the second.",
    ("ARRAY_EXCEPT(ARRAY[1, 2, 3, 1], ARRAY[2])", "ARRAY[1, 3]"),
)
def array_except(array: Values, exceptions: Values) -> Values:
    """The difference of two sets, in the order of the first."""
    left_out = set(map(equality_key, exceptions))
    return [value for value in distinct(array) if equality_key(value) not in left_out]


@scalar(
    "ARRAY_INTERSECT(left ARRAY<T>, right ARRAY<T>) -> ARRAY<T>",
    "The different elements of the first array that are in the second, too.",
    ("ARRAY_INTERSECT(ARRAY[3, 2, 1, 2], ARRAY[2, 3, 4])", "ARRAY[3, 2]"),
)
def array_intersect(left: Values, right: Values) -> Values:
    """The intersection of two sets, in the order of the first."""
    wanted = set(map(equality_key, right))
    return [value for value in distinct(left) if equality_key(value) in wanted]


@scalar(
    "ARRAY_UNION(left ARRAY<T>, right ARRAY<T>) -> ARRAY<T>",
    "The different elements of both arrays.",
    ("ARRAY_UNION(ARRAY[1, 2, 2], ARRAY[3, 2])", "ARRAY[1, 2, 3]"),
)
def array_union(left: Values, right: Values) -> Values:
    """The union of two sets, in the order of the first, then of the second."""
    return distinct(chain(left, right))


@scalar(
    "ARRAY_REMOVE(array ARRAY<T>, value T) -> ARRAY<T>",
    "The elements that are not equal to a value, which may be null.",
    ("ARRAY_REMOVE(ARRAY[1, 2, 1], 1)", "ARRAY[2]"),
    takes_nulls=True,
)
def array_remove(array: Values | None, value: Any) -> Values | None:
    """The array without a value."""
    if array is None:
        return None
    removed = equality_key(value)
    return [one for one in array if equality_key(one) != removed]


@scalar(
    "ARRAY_LENGTH(array ARRAY<T>) -> INTEGER",
    "The number of elements.",
    ("ARRAY_LENGTH(ARRAY[1, NULL])", "2"),
)
def array_length(array: Values) -> int:
    """How many elements there are."""
    return len(array)


_JOINED = (BOOLEAN, INTEGER, BIGINT, DOUBLE, STRING)


def _joined_text(types: Sequence[SqlType | None], _: Sequence[Any]) -> SqlType:
    element = element_type(types)
    if element not in _JOINED and not isinstance(element, Decimal):
        raise SqlError(f"expected an array of numbers, texts or booleans, and got {text_of(Array(element))}")
    return STRING


@scalar(
    "ARRAY_JOIN(array ARRAY<T>) -> STRING",
    "The elements as one text, with commas between them. A null element is `null`.",
    ("ARRAY_JOIN(ARRAY[1, NULL, 2])", "'1,null,2'"),
    by_type=True,
    result_type=_joined_text,
)
@scalar(
    "ARRAY_JOIN(array ARRAY<T>, delimiter STRING) -> STRING",
    "The elements as one text, with the delimiter between them: none if it is null. A null element is `null`.",
    ("ARRAY_JOIN(ARRAY['a', 'b'], '; ')", "'a; b'"),
    by_type=True,
    takes_nulls=True,
    result_type=_joined_text,
)
def array_join(*types: SqlType | None) -> Callable[..., str | None]:
    """The function that joins the elements of an array of this type."""
    text = text_function(element_type(types))

    def join(values: Values | None, delimiter: str | None = ",") -> str | None:
        if values is None:
            return None
        return (delimiter or "").join(NULL if one is None else text(one) for one in values)

    return join


@scalar(
    "ARRAY_MAX(array ARRAY<T>) -> T",
    "The greatest element that is not null; null if there is none.",
    ("ARRAY_MAX(ARRAY[1, 3, NULL, 2])", "3"),
    by_type=True,
    result_type=ordered_element,
)
def array_max(*types: SqlType) -> Callable[[Values], Any]:
    """The function that finds the greatest element."""
    order = order_of(element_type(types))
    return lambda values: max((one for one in values if one is not None), key=order, default=None)


@scalar(
    "ARRAY_MIN(array ARRAY<T>) -> T",
    "The least element that is not null; null if there is none.",
    ("ARRAY_MIN(ARRAY['b', 'a'])", "'a'"),
    by_type=True,
    result_type=ordered_element,
)
def array_min(*types: SqlType) -> Callable[[Values], Any]:
    """The function that finds the least element."""
    order = order_of(element_type(types))
    return lambda values: min((one for one in values if one is not None), key=order, default=None)


def _sorted_array(types: Sequence[SqlType | None], literals: Sequence[Any]) -> SqlType:
    return Array(ordered_element(types, literals))


_DIRECTIONS = {"ASC": False, "ASCENDING": False, "DESC": True, "DESCENDING": True}
"""Whether the greatest comes first."""


@scalar(
    "ARRAY_SORT(array ARRAY<T>) -> ARRAY<T>",
    "The elements, the least first. Nulls come last.",
    ("ARRAY_SORT(ARRAY[3, NULL, 1])", "ARRAY[1, 3, NULL]"),
    by_type=True,
    result_type=_sorted_array,
)
@scalar(
    "ARRAY_SORT(array ARRAY<T>, direction STRING) -> ARRAY<T>",
    "The elements in a direction: ASC or ASCENDING, DESC or DESCENDING; any other one gives null. Nulls come last.",
    ("ARRAY_SORT(ARRAY[3, NULL, 1, 4], 'DESC')", "ARRAY[4, 3, 1, NULL]"),
    by_type=True,
    result_type=_sorted_array,
)
def array_sort(*types: SqlType | None) -> Callable[..., Values | None]:
    """The function that sorts the elements."""
    order = order_of(element_type(types))

    def sort(values: Values, direction: str = "ASC") -> Values | None:
        is_descending = _DIRECTIONS.get(direction.upper())
        if is_descending is None:
            return None
        present = [one for one in values if one is not None]
        present.sort(key=order, reverse=is_descending)
        return present + [None] * (len(values) - len(present))

    return sort


@scalar(
    "SLICE(array ARRAY<T>, from INTEGER, to INTEGER) -> ARRAY<T>",
    "The elements from one place to another, both included; the first place is 1. Null is the first or last place. "
    "Places outside of the array give null.",
    ("SLICE(ARRAY[1, 2, 3, 4], 2, 3)", "ARRAY[2, 3]"),
    takes_nulls=True,
)
def array_slice(array: Values | None, first: int | None, last: int | None) -> Values | None:
    """A part of an array."""
    if array is None:
        return None
    start, end = 0 if first is None else first - 1, len(array) if last is None else last
    return array[start:end] if 0 <= start <= end <= len(array) else None


@scalar(
    "ELT(place INTEGER, texts STRING MANY) -> STRING",
    "The text at a place; the first one is 1. Null if there is no such place.",
    ("ELT(2, 'a', 'b')", "'b'"),
    takes_nulls=True,
)
def element(place: int | None, *texts: str | None) -> str | None:
    """One of several texts."""
    return texts[place - 1] if place is not None and 1 <= place <= len(texts) else None
