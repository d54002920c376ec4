"""Avro's types as the parser leaves them: a graph, in which recursive records refer to themselves.

Keeps true:  two mentions of a named type are one object, two mentions of any other type are two objects: the
             comparison of schemas remembers pairs of objects, and so ends for recursive types.
"""

from __future__ import annotations

from felice.dataclass import dataclass
from felice.registry.formats.json_text import Json

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
KINDS = frozenset(PRIMITIVES) | {"record", "enum", "fixed", "array", "map", "union"}


@dataclass(slots=True, eq=False)
class Name:
    """A full name. `space` is None for names without namespace."""

    simple: str
    space: str | None

    @property
    def full(self) -> str:
        """The namespace, a dot and the simple name; only the simple name without namespace."""
        return self.simple if self.space is None else f"{self.space}.{self.simple}"

    def qualified(self, space: str | None) -> str:
        """The shortest text that means this name inside the namespace `space`."""
        if self.space is None or self.space != space or self.simple in KINDS:
            return self.full
        return self.simple


@dataclass(slots=True, eq=False)
class Primitive:
    """A type without parts. Its `kind` is one of `PRIMITIVES`."""

    kind: str
    props: dict[str, Json]


@dataclass(slots=True, eq=False)
class Array:
    """Values of one type."""

    items: Schema
    props: dict[str, Json]
    kind: str = "array"


@dataclass(slots=True, eq=False)
class Map:
    """Values of one type by strings."""

    values: Schema
    props: dict[str, Json]
    kind: str = "map"


@dataclass(slots=True, eq=False)
class Union:
    """A value of one of several types. A union has no properties of its own."""

    branches: list[Schema]
    kind: str = "union"


@dataclass(slots=True, eq=False)
class Field:
    """A field of a record. `default` is `NO_DEFAULT` if it has none."""

    name: str
    type: Schema
    doc: str | None
    default: Json
    order: str
    aliases: list[str]
    props: dict[str, Json]

    @property
    def has_default(self) -> bool:
        """Whether readers use a default for data without this field."""
        return self.default is not NO_DEFAULT


NO_DEFAULT = object()


@dataclass(slots=True, eq=False)
class Record:
    """A record. `by_name` has its fields by their names. `word` is `error` for the errors of Avro's protocols."""

    name: Name
    doc: str | None
    aliases: list[Name]
    props: dict[str, Json]
    fields: list[Field]
    by_name: dict[str, Field]
    kind: str = "record"
    word: str = "record"


@dataclass(slots=True, eq=False)
class Enum:
    """One of several symbols. `default` is read for a symbol that the reader does not know."""

    name: Name
    doc: str | None
    aliases: list[Name]
    props: dict[str, Json]
    symbols: list[str]
    default: str | None
    kind: str = "enum"


@dataclass(slots=True, eq=False)
class Fixed:
    """A number of bytes."""

    name: Name
    doc: str | None
    aliases: list[Name]
    props: dict[str, Json]
    size: int
    kind: str = "fixed"


@dataclass(slots=True, eq=False)
class Unresolved:
    """The mention of a name that is not defined yet. No finished schema contains it."""

    full: str
    kind: str = "unresolved"


Named = Record | Enum | Fixed
Schema = Primitive | Array | Map | Union | Record | Enum | Fixed | Unresolved


def type_name(schema: Schema) -> str:
    """What tells the branches of a union apart: the full name, or the kind of a type without name."""
    return schema.name.full if isinstance(schema, Named) else schema.kind


def alias_texts(schema: Named) -> list[str]:
    """The full names of the aliases. An alias without namespace, of a type with one, begins with a dot."""
    return [
        f".{alias.simple}" if alias.space is None and schema.name.space is not None else alias.full
        for alias in schema.aliases
    ]
