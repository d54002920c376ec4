"""The keywords of JSON Schema that the registry reads: in which drafts they exist, and what their values must be.

Source:      the metaschemas of the drafts 4 to 2020-12. Keywords that are not listed, such as `title` or `format`,
             may have any value here: validators ignore what they do not know.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from felice.dataclass import dataclass
from felice.registry.formats.json_text import Json

DRAFTS = (4, 6, 7, 2019, 2020)
MAX_PATTERNS = 200
"""Limit of the patterns of one object: a comparison may try each with each property."""

TYPES = frozenset(("null", "boolean", "object", "array", "number", "string", "integer"))


@dataclass(slots=True, frozen=True)
class Keyword:
    """A keyword. `first` and `last` are the drafts that have it; `expected` describes what `fits` accepts."""

    name: str
    expected: str
    fits: Callable[[Json], bool]
    first: int = 4
    last: int = 2020

    def exists_in(self, draft: int) -> bool:
        """Whether a draft knows the keyword."""
        return self.first <= draft <= self.last


def is_number(value: Json) -> bool:
    """Whether a value is a number in JSON."""
    return type(value) in (int, Decimal)


def is_schema(value: Json) -> bool:
    """Whether a value may be a schema: an object or, since draft 6, a boolean."""
    return isinstance(value, (dict, bool))


def _is_count(value: Json) -> bool:
    return is_number(value) and value >= 0 and value == int(value)


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _are_texts(value: Json) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_schemas(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_schema, value))


def _is_map_of(fits: Callable[[Json], bool]) -> Callable[[Json], bool]:
    return lambda value: isinstance(value, dict) and all(map(fits, value.values()))


def _are_patterns(value: Json) -> bool:
    return _map_of_schemas(value) and len(value) <= MAX_PATTERNS


def _is_type(value: Json) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in TYPES for name in names)


_SCHEMA, _SCHEMAS, _MAP = "a schema", "a list of schemas", "an object of schemas"
_COUNT, _NUMBER = "an integer that is not negative", "a number"
_TYPE = f"one or several of {', '.join(sorted(TYPES))}"
_map_of_schemas = _is_map_of(is_schema)

KEYWORDS = (
    Keyword("type", _TYPE, _is_type),
    Keyword("enum", "a list", lambda value: isinstance(value, list)),
    Keyword("const", "a value", lambda _: True, first=6),
    Keyword("allOf", _SCHEMAS, _are_schemas),
    Keyword("anyOf", _SCHEMAS, _are_schemas),
    Keyword("oneOf", _SCHEMAS, _are_schemas),
    Keyword("not", _SCHEMA, is_schema),
    Keyword("if", _SCHEMA, is_schema, first=7),
    Keyword("then", _SCHEMA, is_schema, first=7),
    Keyword("else", _SCHEMA, is_schema, first=7),
    Keyword("maxLength", _COUNT, _is_count),
    Keyword("minLength", _COUNT, _is_count),
    Keyword("pattern", "a regular expression", _is_text),
    Keyword("maximum", _NUMBER, is_number),
    Keyword("minimum", _NUMBER, is_number),
    Keyword("exclusiveMaximum", "a boolean", lambda value: isinstance(value, bool), last=4),
    Keyword("exclusiveMinimum", "a boolean", lambda value: isinstance(value, bool), last=4),
    Keyword("exclusiveMaximum", _NUMBER, is_number, first=6),
    Keyword("exclusiveMinimum", _NUMBER, is_number, first=6),
    Keyword("multipleOf", "a number above 0", lambda value: is_number(value) and value > 0),
    Keyword("properties", _MAP, _map_of_schemas),
    Keyword("patternProperties", f"{_MAP}, at most {MAX_PATTERNS}", _are_patterns),
    Keyword("additionalProperties", _SCHEMA, is_schema),
    Keyword("unevaluatedProperties", _SCHEMA, is_schema, first=2019),
    Keyword("propertyNames", _SCHEMA, is_schema, first=6),
    Keyword("required", "a list of names", _are_texts),
    Keyword("maxProperties", _COUNT, _is_count),
    Keyword("minProperties", _COUNT, _is_count),
    Keyword(
        "dependencies",
        "an object of schemas or lists of names",
        _is_map_of(lambda value: is_schema(value) or _are_texts(value)),
        last=7,
    ),
    Keyword("dependentRequired", "an object of lists of names", _is_map_of(_are_texts), first=2019),
    Keyword("dependentSchemas", _MAP, _map_of_schemas, first=2019),
    Keyword(
        "items",
        "a schema or a list of schemas",
        lambda value: is_schema(value) or _are_schemas(value),
        last=2019,
    ),
    Keyword("items", _SCHEMA, is_schema, first=2020),
    Keyword("prefixItems", _SCHEMAS, _are_schemas, first=2020),
    Keyword("additionalItems", _SCHEMA, is_schema, last=2019),
    Keyword("unevaluatedItems", _SCHEMA, is_schema, first=2019),
    Keyword("contains", _SCHEMA, is_schema, first=6),
    Keyword("maxContains", _COUNT, _is_count, first=2019),
    Keyword("minContains", _COUNT, _is_count, first=2019),
    Keyword("maxItems", _COUNT, _is_count),
    Keyword("minItems", _COUNT, _is_count),
    Keyword("uniqueItems", "a boolean", lambda value: isinstance(value, bool)),
    Keyword("$ref", "a URI", _is_text),
    Keyword("$recursiveRef", "a URI", _is_text, first=2019, last=2019),
    Keyword("$dynamicRef", "a URI", _is_text, first=2020),
)

OF_DRAFT = {
    draft: {keyword.name: keyword for keyword in KEYWORDS if keyword.exists_in(draft)} for draft in DRAFTS
}
"""The keywords of each draft by their names."""

REFERENCES = ("$ref", "$recursiveRef", "$dynamicRef")
