"""From an Avro schema's JSON to its types, by the rules of the Avro specification as Java's parser has them.

Keeps true:  a parsed schema mentions defined types only, its names are valid, its unions have no two branches of one
             name, and its defaults fit their fields.
How:         one descent over the JSON. A type may be mentioned before its definition: such mentions are noted, and
             replaced when the text has been read. A second definition of a name must be equal to the first.
Leaves out:  the check of defaults where the caller does not ask for it: old registries accepted any default.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable

from felice.registry.formats.avro.defaults import Defaults, EnclosingRecord, is_integer
from felice.registry.formats.avro.model import (
    NO_DEFAULT,
    PRIMITIVES,
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
    Unresolved,
    type_name,
)
from felice.registry.formats.avro.sameness import same
from felice.registry.formats.avro.texts import canonical_json
from felice.registry.formats.json_text import Json, decode, shown
from felice.registry.formats.schema import InvalidSchema

_RESERVED = frozenset(
    ("doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases")
)
_ENUM_RESERVED = _RESERVED | {"default"}
_FIELD_RESERVED = frozenset(("default", "doc", "name", "order", "type", "aliases"))
_MAX_FIXED_BYTES = 2**31 - 1 - 8
"""The largest array of a Java virtual machine."""
_JAVA_DOUBLE = re.compile(
    r"\s*([+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[fFdD]?\s*"
)
_ORDERS = ("ascending", "descending", "ignore")


class Parser:
    """Parses texts one after the other; each may use the names of those before it."""

    def __init__(self) -> None:
        self._known: dict[str, Named] = {}
        self._mentions: list[tuple[str, Callable[[Schema], None]]] = []
        self._unions: list[Union] = []
        self._fields: list[Field] = []
        # The full names of the records around the place where the descent is.
        self._open: list[str] = []
        self._check_defaults = False
        self._defaults = Defaults(self._open, self._known)

    def parse(self, text: str, *, check_defaults: bool = False) -> Schema:
        """The type that `text` defines. Raises `InvalidSchema`."""
        if not text.strip():
            raise InvalidSchema("Cannot parse <null> schema")
        json, self._check_defaults = decode(text, comments=True), check_defaults
        root: list[Schema] = []
        root.append(self._type(json, None, lambda found: root.__setitem__(0, found)))
        self._resolve()
        return root[0]

    def _resolve(self) -> None:
        """Replaces mentions of names that were defined after them, and checks what needs all types."""
        for full, replace in self._mentions:
            if full not in self._known:
                raise InvalidSchema(f"Undefined schema: {full}")
            replace(self._known[full])
        for union in self._unions:
            _require_distinct(union)
        # What was found out before may have been about types that were not defined yet.
        self._defaults = Defaults(self._open, self._known)
        for field in self._fields:
            self._require_valid_default(field)
        self._mentions, self._unions, self._fields = [], [], []

    def _type(self, json: Json, space: str | None, replace: Callable[[Schema], None]) -> Schema:
        """The type of a JSON value. `replace` puts another type into its place, if it has to be resolved later."""
        if isinstance(json, str):
            return self._mentioned(json, space, replace)
        if isinstance(json, list):
            return self._union(json, space)
        if not isinstance(json, dict):
            raise InvalidSchema(f"Schema not yet supported: {shown(json)}")
        kind = _required_text(json, "type", "No type")
        if kind in PRIMITIVES:
            return Primitive(kind, _props(json, _RESERVED))
        if kind == "array":
            array = Array(_NOTHING, _props(json, _RESERVED))
            items = _required(json, "items", "Array has no items type")
            array.items = self._type(items, space, lambda found: setattr(array, "items", found))
            return array
        if kind == "map":
            mapping = Map(_NOTHING, _props(json, _RESERVED))
            values = _required(json, "values", "Map has no values type")
            mapping.values = self._type(values, space, lambda found: setattr(mapping, "values", found))
            return mapping
        if kind in ("record", "error"):
            return self._define(self._record(json, space, kind))
        if kind == "enum":
            return self._define(_enum(json, space))
        if kind == "fixed":
            return self._define(_fixed(json, space))
        return self._mentioned(kind, space, replace)

    def _mentioned(self, name: str, space: str | None, replace: Callable[[Schema], None]) -> Schema:
        if name in PRIMITIVES:
            return Primitive(name, {})
        full = name if space is None or "." in name else f"{space}.{name}"
        found = self._known.get(full) or self._known.get(name)
        if found is None:
            self._mentions.append((full, replace))
            return Unresolved(full)
        return found

    def _union(self, json: list[Json], space: str | None) -> Union:
        branches: list[Schema] = []
        union = Union(branches)
        for index, inner in enumerate(json):
            branches.append(self._type(inner, space, _setter(branches, index)))
            if isinstance(branches[-1], Union):
                raise InvalidSchema(f"Nested union: {shown(json)}")
        self._unions.append(union)
        return union

    def _define(self, schema: Named) -> Named:
        full = schema.name.full
        *spaces, simple = full.rstrip(".").split(".")
        for part in spaces:
            _require_name(part, f'Namespace part "{part}" is invalid: ')
        _require_name(simple, f'Name "{simple}" is invalid: ')
        if not same(self._known.setdefault(full, schema), schema):
            raise InvalidSchema(f"Can't redefine: {full}")
        return schema

    def _record(self, json: dict[str, Json], space: str | None, word: str) -> Record:
        name = _name(json, space)
        listed = json.get("fields")
        if not isinstance(listed, list):
            raise InvalidSchema(f"Record has no fields: {shown(json)}")
        aliases = _type_aliases(json, name)
        record = Record(name, _text(json, "doc"), aliases, _props(json, _RESERVED), [], {}, word=word)
        self._open.append(name.full)
        for inner in listed:
            field = self._field(inner, name.space)
            if field.name in record.by_name:
                raise InvalidSchema(f"Duplicate field {field.name} in record {name.full}")
            record.fields.append(field)
            record.by_name[field.name] = field
        self._open.pop()
        return record

    def _field(self, json: Json, space: str | None) -> Field:
        if not isinstance(json, dict):
            raise InvalidSchema(f"No field name: {shown(json)}")
        name = _required_text(json, "name", "No field name")
        field = Field(
            name, _NOTHING, _text(json, "doc"), json.get("default", NO_DEFAULT), _order(json), [], {}
        )
        field.type = self._type(
            _required(json, "type", "No field type"), space, lambda found: setattr(field, "type", found)
        )
        if field.type.kind in ("float", "double") and isinstance(field.default, str):
            field.default = _double(name, field.default)
        _require_name(name)
        field.props, field.aliases = _props(json, _FIELD_RESERVED), _aliases(json)
        if field.has_default:
            self._require_valid_default(field)
            self._fields.append(field)
        return field

    def _require_valid_default(self, field: Field) -> None:
        try:
            fits = not self._check_defaults or self._defaults.fits(field.type, field.default)
        except EnclosingRecord:
            fits = False
        if not fits:
            type_text = shown(canonical_json(field.type))
            raise InvalidSchema(
                f"Invalid default for field {field.name}: {shown(field.default)} not a {type_text}"
            )


_NOTHING = Unresolved("")


def _setter(branches: list[Schema], index: int) -> Callable[[Schema], None]:
    return lambda found: branches.__setitem__(index, found)


def _require_distinct(union: Union) -> None:
    names: set[str] = set()
    for branch in union.branches:
        name = type_name(branch)
        if name in names:
            raise InvalidSchema(f"Duplicate in union:{name}")
        names.add(name)


def _enum(json: dict[str, Json], space: str | None) -> Enum:
    name, symbols = _name(json, space), json.get("symbols")
    if not isinstance(symbols, list):
        raise InvalidSchema(f"Enum has no symbols: {shown(json)}")
    known: dict[str, None] = {}
    for symbol in symbols:
        _require_name(symbol)
        if symbol in known:
            raise InvalidSchema(f"Duplicate enum symbol: {symbol}")
        known[symbol] = None
    default = _text(json, "default")
    if default is not None and default not in known:
        raise InvalidSchema(
            f"The Enum Default: {default} is not in the enum symbol set: {_java_list(symbols)}"
        )
    aliases = _type_aliases(json, name)
    return Enum(name, _text(json, "doc"), aliases, _props(json, _ENUM_RESERVED), list(known), default)


def _fixed(json: dict[str, Json], space: str | None) -> Fixed:
    name, size = _name(json, space), json.get("size")
    if not is_integer(size, 32):
        raise InvalidSchema(f"Invalid or no size: {shown(json)}")
    if size < 0:
        raise InvalidSchema(f"Malformed data. Length is negative: {size}")
    if size > _MAX_FIXED_BYTES:
        raise InvalidSchema(f"Cannot read arrays longer than {_MAX_FIXED_BYTES} bytes in Java library")
    return Fixed(name, _text(json, "doc"), _type_aliases(json, name), _props(json, _RESERVED), size)


def _name(json: dict[str, Json], space: str | None) -> Name:
    own = _text(json, "namespace")
    name = _qualified(_required_text(json, "name", "No name in schema"), space if own is None else own)
    if name.full in PRIMITIVES:
        raise InvalidSchema(f"Schemas may not be named after primitives: {name.full}")
    return name


def _qualified(text: str, space: str | None) -> Name:
    before, dot, simple = text.rpartition(".")
    _require_name(simple)
    return Name(simple, (before if dot else space) or None)


def _type_aliases(json: dict[str, Json], name: Name) -> list[Name]:
    distinct = {alias.full: alias for alias in (_qualified(text, name.space) for text in _aliases(json))}
    return list(distinct.values())


def _aliases(json: dict[str, Json]) -> list[str]:
    if "aliases" not in json:
        return []
    aliases = json["aliases"]
    if not isinstance(aliases, list):
        raise InvalidSchema(f"aliases not an array: {shown(json)}")
    for alias in aliases:
        if not isinstance(alias, str):
            raise InvalidSchema(f"alias not a string: {shown(alias)}")
    return list(dict.fromkeys(aliases))


def _order(json: dict[str, Json]) -> str:
    order = json.get("order", "ascending")
    if not isinstance(order, str) or order.lower() not in _ORDERS:
        raise InvalidSchema(f"Invalid order of a field: {shown(order)}")
    return order.lower()


def _double(field: str, text: str) -> float:
    number = _JAVA_DOUBLE.fullmatch(text)
    if number is None:
        raise InvalidSchema(f"Invalid default for field {field}: {shown(text)} not a number")
    return float(number[1])


def _props(json: dict[str, Json], reserved: Iterable[str]) -> dict[str, Json]:
    return {name: value for name, value in json.items() if name not in reserved}


def _text(json: dict[str, Json], member: str) -> str | None:
    value = json.get(member)
    return value if isinstance(value, str) else None


def _required_text(json: dict[str, Json], member: str, error: str) -> str:
    value = json.get(member)
    if not isinstance(value, str):
        raise InvalidSchema(f"{error}: {shown(json)}")
    return value


def _required(json: dict[str, Json], member: str, error: str) -> Json:
    if member not in json:
        raise InvalidSchema(f"{error}: {shown(json)}")
    return json[member]


def _require_name(name: Json, prefix: str = "") -> None:
    """Raises `InvalidSchema` unless the first character is a letter or `_`, and the others also digits."""
    if not isinstance(name, str):
        raise InvalidSchema(f"{prefix}Null name")
    if not name:
        raise InvalidSchema(f"{prefix}Empty name")
    if not (_is_letter(name[0]) or name[0] == "_"):
        raise InvalidSchema(f"{prefix}Illegal initial character: {name[:300]}")
    if not (name.isascii() and name.replace("_", "a").isalnum()) and not all(
        _is_letter(char) or char == "_" or (unicodedata.category(char) == "Nd" and char <= "\uffff")
        for char in name
    ):
        raise InvalidSchema(f"{prefix}Illegal character in: {name[:300]}")


def _is_letter(char: str) -> bool:
    # Java looks at UTF-16: characters beyond its first plane are pairs of surrogates, and no letters.
    return unicodedata.category(char)[0] == "L" and char <= "\uffff"


def _java_list(values: Iterable[str]) -> str:
    return f"[{', '.join(values)}]"
