"""JSON schemas as the rules of compatibility see them: each has one kind, or combines schemas of several kinds.

`{"type": "string", "enum": […]}` is a combination (`allOf`) of a string and an enum, `{"type": ["string", "null"]}` a
combination (`anyOf`) of a string and null, and a schema without `type` has the kinds whose keywords it has. The rules
of Confluent's registry are about these kinds.
"""

from __future__ import annotations

from felice.dataclass import dataclass
from felice.registry.formats.json_text import Json


@dataclass(slots=True, eq=False)
class Anything:
    """`true`, or an object without a keyword that restricts values."""

    json: Json


@dataclass(slots=True, eq=False)
class Nothing:
    """`false`."""

    json: Json


@dataclass(slots=True, eq=False)
class Reference:
    """A `$ref`. `target` is set when all of the text has been read."""

    json: Json
    target: Schema | None = None


@dataclass(slots=True, eq=False)
class Simple:
    """A boolean, null or condition (`if`): nothing in it is compared. `kind` tells them apart."""

    json: Json
    kind: str


@dataclass(slots=True, eq=False)
class Enum:
    """One of several values, as texts whose members are sorted."""

    json: Json
    values: frozenset[str]


@dataclass(slots=True, eq=False)
class Const:
    """One value, as a text whose members are sorted."""

    json: Json
    value: str


@dataclass(slots=True, eq=False)
class Not:
    """Everything that `inner` does not accept."""

    json: Json
    inner: Schema


@dataclass(slots=True, eq=False)
class Combined:
    """`criterion` is allOf, anyOf or oneOf."""

    json: Json
    criterion: str
    parts: list[Schema]


@dataclass(slots=True, eq=False)
class Text:
    """A string. Its limits are in `json`."""

    json: Json


@dataclass(slots=True, eq=False)
class Number:
    """A number. `limits` are its keywords: those of draft 4 are translated to those of the later drafts."""

    json: Json
    limits: dict[str, Json]
    is_integer: bool


@dataclass(slots=True, eq=False)
class Object:
    """An object. `additional` is True, False or the schema of properties that are not named."""

    json: Json
    properties: dict[str, Schema]
    patterns: dict[str, Schema]
    additional: Schema | bool
    unevaluated: Schema | None
    required: frozenset[str]
    dependent_names: dict[str, frozenset[str]]
    dependent_schemas: dict[str, Schema]


@dataclass(slots=True, eq=False)
class Array:
    """An array: `items` is the schema of all items, or `tuple` has one for each of the first.

    `additional` is True, False or the schema of the items behind the tuple.
    """

    json: Json
    items: Schema | None
    tuple: list[Schema]
    additional: Schema | bool
    unevaluated: Schema | None


Schema = (
    Anything | Nothing | Reference | Simple | Enum | Const | Not | Combined | Text | Number | Object | Array
)


def resolved(schema: Schema) -> Schema:
    """The schema that a reference, or a chain of them, refers to."""
    while isinstance(schema, Reference):
        assert schema.target is not None
        schema = schema.target
    return schema


def kind(schema: Schema) -> str:
    """Two schemas of different kinds are compatible only in the special cases of the rules."""
    return schema.kind if isinstance(schema, Simple) else type(schema).__name__


def has_default(schema: Schema) -> bool:
    """Whether readers have a default for a property of this schema."""
    return isinstance(schema.json, dict) and "default" in schema.json
