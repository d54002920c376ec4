"""Compiles a function that counts the error codes of one kind of response.

Keeps true:  every field `error_code` or `partition_error_code` counts once, at every depth. The errors are those in
             `errorCounts` of Kafka's responses; Kafka leaves out the NONE of some levels.
             Elements that were encoded in advance (`primitives.Encoded`) are skipped.
How:         one function of straight-line code for each class: brokers count on every request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from felice.protocol.primitives import Encoded
from felice.protocol.schema import FieldType, schema_of
from felice.protocol.source import Source

ERROR_CODES = ("error_code", "partition_error_code")
"""The names of fields with an error code, at every depth of a response."""

CountErrors = Callable[[object, dict[int, int]], None]


def compile_error_counter(cls: type) -> CountErrors:
    """Return `count(message, counts)`. It adds to `counts`, a `defaultdict(int)`, by error code."""
    source = Source({"Encoded": Encoded})
    with source.block("def count(message, counts):"):
        source.add("pass")
        _add_struct(source, "message", cls)
    label = f"count errors of {schema_of(cls).name}"
    return cast(CountErrors, source.compile("count", label).call)


def _add_struct(source: Source, value: str, cls: type) -> None:
    for field in schema_of(cls).fields:
        if field.name in ERROR_CODES:
            source.add(f"counts[{value}.{field.name}] += 1")
        elif _has_errors(field.type):
            _add_nested(source, f"{value}.{field.name}", field.type)


def _add_nested(source: Source, value: str, kind: FieldType) -> None:
    if kind.struct is not None:
        with source.block(f"if {value} is not None:"):
            _add_struct(source, value, kind.struct)
        return
    assert kind.element is not None and kind.element.struct is not None
    element = source.fresh("element")
    with source.block(f"for {element} in {value} or ():"):
        if kind.element.may_be_encoded:
            with source.block(f"if type({element}) is Encoded:"):
                source.add("continue")
        _add_struct(source, element, kind.element.struct)


def _has_errors(kind: FieldType) -> bool:
    cls = kind.element.struct if kind.element is not None else kind.struct
    if cls is None:
        return False
    return any(field.name in ERROR_CODES or _has_errors(field.type) for field in schema_of(cls).fields)
