"""The texts of a parsed Avro schema.

The canonical text is that of Java's `Schema.toString`: `type`, `name`, `namespace`, `doc`, then the type's own members,
its properties, and `aliases`; a named type is defined at its first mention, unless it is a reference's. The normalized
text is the canonical text of what Confluent's registry makes of a schema for `normalize=true`: properties, aliases and
the members of defaults and properties are sorted, and defaults have their field's type.
"""

from __future__ import annotations

from collections.abc import Iterable

from felice.registry.formats.avro.model import (
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Name,
    Named,
    Primitive,
    Record,
    Schema,
    Union,
    alias_texts,
)
from felice.registry.formats.json_text import Json, as_single, require_shallow, sorted_json, too_deep
from felice.registry.formats.schema import MAX_DEPTH


def canonical_json(schema: Schema, referenced: Iterable[str] = ()) -> Json:
    """The members of the canonical text in their order. `referenced` are full names that are not defined in it.

    Raises `InvalidSchema` if the text would nest too deeply: definitions stand inside each other in it, which may
    have followed each other in the text that was parsed.
    """
    json = _Canonical(set(referenced)).json(schema, None, 0)
    require_shallow(json)
    return json


class _Canonical:
    def __init__(self, written: set[str]) -> None:
        self._written = written

    def json(self, schema: Schema, space: str | None, depth: int) -> Json:
        """`space` is the namespace of the definition around it, `depth` the number of arrays and objects around it."""
        if depth > MAX_DEPTH:
            raise too_deep()
        match schema:
            case Primitive():
                return {"type": schema.kind, **schema.props} if schema.props else schema.kind
            case Array():
                return {"type": "array", "items": self.json(schema.items, space, depth + 1), **schema.props}
            case Map():
                return {"type": "map", "values": self.json(schema.values, space, depth + 1), **schema.props}
            case Union():
                return [self.json(branch, space, depth + 1) for branch in schema.branches]
            case Record() | Enum() | Fixed():
                return self._named(schema, space, depth)
        # Only in the text of an error, about a schema that is still being parsed.
        return schema.full

    def _named(self, schema: Named, space: str | None, depth: int) -> Json:
        name = schema.name
        if name.full in self._written:
            return name.qualified(space)
        self._written.add(name.full)
        json: dict[str, Json] = {"type": schema.word if isinstance(schema, Record) else schema.kind}
        json |= _written_name(name, space)
        if schema.doc is not None:
            json["doc"] = schema.doc
        match schema:
            case Record():
                json["fields"] = [self._field(field, name.space, depth + 2) for field in schema.fields]
            case Enum():
                json["symbols"] = schema.symbols
                if schema.default is not None:
                    json["default"] = schema.default
            case Fixed():
                json["size"] = schema.size
        json |= schema.props
        if schema.aliases:
            json["aliases"] = [alias.qualified(name.space) for alias in schema.aliases]
        return json

    def _field(self, field: Field, space: str | None, depth: int) -> Json:
        json: dict[str, Json] = {"name": field.name, "type": self.json(field.type, space, depth + 1)}
        if field.doc is not None:
            json["doc"] = field.doc
        if field.has_default:
            json["default"] = field.default
        if field.order != "ascending":
            json["order"] = field.order
        if field.aliases:
            json["aliases"] = field.aliases
        return json | field.props


def _written_name(name: Name, space: str | None) -> dict[str, Json]:
    if name.space is None:
        return {"name": name.simple} if space is None else {"name": name.simple, "namespace": ""}
    return {"name": name.simple} if name.space == space else {"name": name.simple, "namespace": name.space}


def normalized(schema: Schema, referenced: Iterable[str] = ()) -> Schema:
    """The type in Confluent's normal form: its canonical text is the normalized text. Referenced types stay.

    Confluent's registry forgets a default that is not of the first branch of its union; here it stays.
    """
    return _Normal(frozenset(referenced)).type(schema)


class _Normal:
    def __init__(self, referenced: frozenset[str]) -> None:
        self._referenced = referenced
        self._known: dict[str, Named] = {}

    def type(self, schema: Schema) -> Schema:
        match schema:
            case Primitive():
                return Primitive(schema.kind, _logical_props(schema) | sorted_json(schema.props))
            case Array():
                return Array(self.type(schema.items), sorted_json(schema.props))
            case Map():
                return Map(self.type(schema.values), sorted_json(schema.props))
            case Union():
                return Union([self.type(branch) for branch in schema.branches])
            case Record() | Enum() | Fixed():
                if schema.name.full in self._referenced:
                    return schema
                return self._known.get(schema.name.full) or self._named(schema)
        raise AssertionError(f"{schema} was not resolved")

    def _named(self, schema: Named) -> Named:
        name, doc, props = schema.name, schema.doc or None, sorted_json(schema.props)
        aliases = [alias for _, alias in sorted(zip(alias_texts(schema), schema.aliases, strict=True))]
        match schema:
            case Record():
                record = Record(name, doc, aliases, props, [], {}, word=schema.word)
                self._known[name.full] = record
                record.fields += [self._field(field) for field in schema.fields]
                record.by_name |= {field.name: field for field in record.fields}
                return record
            case Enum():
                normal: Named = Enum(name, doc, aliases, props, schema.symbols, schema.default)
            case Fixed():
                normal = Fixed(name, doc, aliases, _logical_props(schema) | props, schema.size)
        self._known[name.full] = normal
        return normal

    def _field(self, field: Field) -> Field:
        default = sorted_json(_typed(field.type, field.default)) if field.has_default else field.default
        aliases, props = sorted(field.aliases), sorted_json(field.props)
        return Field(field.name, self.type(field.type), field.doc, default, field.order, aliases, props)


def _logical_props(schema: Primitive | Fixed) -> dict[str, Json]:
    """The members of a valid logical type, which come before the other properties."""
    kind = schema.props.get("logicalType")
    if kind == "decimal":
        if not _is_decimal(schema):
            return {}
        scale = schema.props.get("scale", 0)
        return {
            "logicalType": kind,
            "precision": schema.props["precision"],
            **({"scale": scale} if scale else {}),
        }
    size = schema.size if isinstance(schema, Fixed) else None
    return {"logicalType": kind} if (schema.kind, size) in _LOGICAL_TYPES.get(str(kind), ()) else {}


_INT, _LONG, _STRING, _BYTES = (("int", None),), (("long", None),), ("string", None), ("bytes", None)
_LOGICAL_TYPES: dict[str, tuple[tuple[str, int | None], ...]] = {
    "big-decimal": (_BYTES,),
    "date": _INT,
    "duration": (("fixed", 12),),
    "local-timestamp-micros": _LONG,
    "local-timestamp-millis": _LONG,
    "local-timestamp-nanos": _LONG,
    "time-micros": _LONG,
    "time-millis": _INT,
    "timestamp-micros": _LONG,
    "timestamp-millis": _LONG,
    "timestamp-nanos": _LONG,
    "uuid": (_STRING, ("fixed", 16)),
}
"""The kind, and for fixed the size, of the types that a logical type may have."""


def _is_decimal(schema: Primitive | Fixed) -> bool:
    precision, scale = schema.props.get("precision"), schema.props.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision <= 0:
        return False
    if isinstance(schema, Fixed):
        # The largest number of digits of a signed integer of that size: floor(log10(2^(8 * size - 1) - 1)).
        return precision <= len(str(2 ** (8 * schema.size - 1) - 1)) - 1 if schema.size < 100 else True
    return schema.kind == "bytes"


def _typed(schema: Schema, value: Json) -> Json:
    """A default as Java holds it: a number of a field of floats becomes a float."""
    match schema:
        case Primitive() if type(value) in (int, float):
            if schema.kind == "float":
                return as_single(value)
            return float(value) if schema.kind == "double" else value
        case Array() if isinstance(value, list):
            return [_typed(schema.items, inner) for inner in value]
        case Map() if isinstance(value, dict):
            return {name: _typed(schema.values, inner) for name, inner in value.items()}
        case Record() if isinstance(value, dict):
            return {
                name: _typed(schema.by_name[name].type, inner) if name in schema.by_name else inner
                for name, inner in value.items()
            }
        case Union() if schema.branches:
            return _typed(schema.branches[0], value)
    return value
