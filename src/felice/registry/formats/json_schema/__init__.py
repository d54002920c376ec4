"""JSON schemas of the drafts 4 to 2020-12: parsing, texts, and whether data of one is valid for another.

The canonical text is the text without white space, its members and the digits of its numbers as they were. The
normalized text has its members sorted. The rules of compatibility are those that Confluent documents (`rules`).
"""

from __future__ import annotations

from collections.abc import Mapping

from felice.registry.formats.json_schema.comparing import Change, incompatible_changes
from felice.registry.formats.json_schema.loading import load
from felice.registry.formats.json_schema.rules import INCOMPATIBLE
from felice.registry.formats.json_text import Json, decode, encode, sorted_json, too_deep
from felice.registry.formats.pairs import NotComparable
from felice.registry.formats.schema import DIFFERENT_TYPE, NEW_READS_OLD, InvalidSchema, ParsedSchema, Roles

_RESERVED_PREFIX = "$$"


def parse(text: str, references: Mapping[str, str]) -> JsonSchema:
    """Parses a schema; see `registry.formats.schema.Parse`. Reference names are the URIs that `$ref` uses."""
    schema = parse_registered(text, references)
    properties = schema.json.get("properties") if isinstance(schema.json, dict) else None
    for name in properties if isinstance(properties, dict) else ():
        if name.startswith(_RESERVED_PREFIX):
            path = f"#/properties/{name[:300]}"
            raise InvalidSchema(f"{path}: Field names cannot start with {_RESERVED_PREFIX} prefix")
    return schema


def parse_registered(text: str, references: Mapping[str, str]) -> JsonSchema:
    """Parses a schema that is already registered: its properties may have any names."""
    try:
        decoded = {name: decode(referenced, decimals=True) for name, referenced in references.items()}
        return JsonSchema(decode(text, decimals=True), decoded)
    except RecursionError:
        raise too_deep() from None


class JsonSchema:
    """A valid JSON schema."""

    schema_type = "JSON"

    def __init__(self, json: Json, references: Mapping[str, Json]) -> None:
        self.json = json
        """The decoded text."""
        self._schema = load(json, references)
        self.canonical = encode(json)
        """The text without white space."""

    def normalized(self) -> str:
        """The canonical text with sorted members."""
        return encode(sorted_json(self.json))

    def formatted(self, form: str) -> str:
        """The canonical text: there are no other forms."""
        return self.canonical

    def incompatibilities(self, writer: ParsedSchema, roles: Roles = NEW_READS_OLD) -> list[str]:
        """Why data of `writer` may be invalid for this schema, in Confluent's words."""
        if not isinstance(writer, JsonSchema):
            return [DIFFERENT_TYPE]
        try:
            changes = incompatible_changes(self._schema, writer._schema)
        except NotComparable as error:
            return [f"Unexpected exception during compatibility check: {error}"]
        return [_described(change, roles) for change in changes]


def _described(change: Change, roles: Roles) -> str:
    description = INCOMPATIBLE[change.name].format(
        path="#/" + "/".join(change.path), reader=roles.reader, writer=roles.writer
    )
    return f'{{errorType:"{change.name}", description:"{description}"}}'


__all__ = ["JsonSchema", "parse", "parse_registered"]
