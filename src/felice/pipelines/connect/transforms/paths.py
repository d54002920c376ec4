"""Paths to fields within fields (KIP-821): `a.b`, or with backticks around a name that has dots: `` `a.b`.c ``.

Source:      Kafka Connect's `SingleFieldPath`, of which only `ExtractField` makes use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from felice.pipelines.connect.configuration.definitions import (
    Definition,
    Importance,
    Type,
    one_of_any_case,
)
from felice.pipelines.connect.model.errors import ConfigError
from felice.pipelines.connect.model.schema import Schema, Struct
from felice.pipelines.connect.transforms.transformation import require_map, require_struct

_PURPOSE = "nested field access"

SYNTAX = Definition(
    "field.syntax.version",
    Type.STRING,
    "V1",
    "How fields are named: V1 is the name of a field; V2 a path with dots, and with backticks around names with dots.",
    Importance.HIGH,
    one_of_any_case("V1", "V2"),
)


class FieldPath:
    """The names of a field and of those that hold it, from the outermost one."""

    def __init__(self, text: str, version: str) -> None:
        """Raises `ConfigError` for a backtick without another one."""
        self.text = text
        self.names = [text] if version.upper() == "V1" else _steps(text)

    def schema(self, schema: Schema) -> Schema | None:
        """The schema of the field within another schema; None if there is no such field."""
        found: Schema | None = schema
        for name in self.names:
            member = None if found is None else found.field(name)
            found = None if member is None else member.schema
        return found

    def of_struct(self, value: Struct, *, fills: bool) -> Any:
        """The value of the field; None if one before it is null. Raises `DataError` for one that is no struct."""
        for name in self.names[:-1]:
            found = value[name]
            if found is None:
                return None
            value = require_struct(found, _PURPOSE)
        name = self.names[-1]
        return value[name] if fills else value.without_default(name)

    def of_map(self, value: Mapping[Any, Any]) -> Any:
        """The same of a value without a schema. A field that is missing is None."""
        for name in self.names[:-1]:
            found = value.get(name)
            if found is None:
                return None
            value = require_map(found, _PURPOSE)
        return value.get(self.names[-1])


def _steps(text: str) -> list[str]:
    steps, at = [], 0
    while at < len(text):
        if text[at] == "`":
            name, at = _quoted(text, at)
        else:
            end = text.find(".", at)
            end = len(text) if end < 0 else end
            name, at = text[at:end], end + 1
        steps.append(name)
    # A dot at the end is followed by a name without letters, and no text at all has no step.
    return [*steps, ""] if text.endswith(".") else steps


def _quoted(text: str, begin: int) -> tuple[str, int]:
    """The name between the backtick at `begin` and the one that ends it, and the place after it and its dot.

    A backtick ends a name if a dot or the end of the text follows; before a dot only without a backslash.
    """
    name, start, at = "", begin + 1, begin + 1
    while (at := text.find("`", at)) >= 0:
        is_escaped, is_last = text[at - 1] == "\\", at >= len(text) - 1
        if is_last and not is_escaped:
            return name + text[start:at], at + 1
        if is_last:
            break
        if text[at + 1] == "." and not is_escaped:
            return name + text[start:at], at + 2
        if text[at + 1] == ".":
            name, start = name + text[start : at - 1] + "`", at + 1
        at += 1
    raise ConfigError(
        f"Incomplete backtick pair in path: [{text}], consider adding a backslash before backtick at position "
        f"{begin} to escape it"
    )
