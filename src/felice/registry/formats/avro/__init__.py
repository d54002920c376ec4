"""Avro schemas: parsing, canonical and normalized texts, and whether data of one can be read with another.

The rules and texts are those of Avro's Java library, which Confluent's registry and the Java clients use: a schema
that one accepts and the other refuses would stop a consumer. Avro's Python library differs in too much to be used here
(decision 2 lists it).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from felice.registry.formats.avro.model import Schema, type_name
from felice.registry.formats.avro.parsing import Parser
from felice.registry.formats.avro.reading import Incompatibility, incompatibilities
from felice.registry.formats.avro.texts import canonical_json, normalized
from felice.registry.formats.json_text import encode, too_deep
from felice.registry.formats.pairs import NotComparable
from felice.registry.formats.schema import DIFFERENT_TYPE, NEW_READS_OLD, ParsedSchema, Roles


def parse(text: str, references: Mapping[str, str]) -> AvroSchema:
    """Parses a schema; see `registry.formats.schema.Parse`."""
    return _parse(text, references, check_defaults=True)


def parse_registered(text: str, references: Mapping[str, str]) -> AvroSchema:
    """Parses a schema that is already registered: its defaults are not checked."""
    return _parse(text, references, check_defaults=False)


def _parse(text: str, references: Mapping[str, str], check_defaults: bool) -> AvroSchema:
    try:
        parser = Parser()
        # Only the type that a reference's text defines as a whole is a reference; Confluent's registry writes the
        # types inside it into the texts that use them.
        referenced = [type_name(parser.parse(referenced)) for referenced in references.values()]
        schema = parser.parse(text, check_defaults=check_defaults)
        return AvroSchema(schema, referenced)
    except RecursionError:
        raise too_deep() from None


class AvroSchema:
    """A valid Avro schema."""

    schema_type = "AVRO"

    def __init__(self, schema: Schema, referenced: Iterable[str]) -> None:
        self._schema = schema
        self._referenced = tuple(referenced)
        self.canonical = encode(canonical_json(schema, self._referenced))
        """The text of Java's `Schema.toString` with the references' names."""

    def normalized(self) -> str:
        """The text that Confluent's registry stores for `normalize=true`."""
        return encode(canonical_json(normalized(self._schema, self._referenced), self._referenced))

    def formatted(self, form: str) -> str:
        """`resolved` is the text with the definitions of the references; any other form is the canonical text."""
        return encode(canonical_json(self._schema)) if form.lower() == "resolved" else self.canonical

    def incompatibilities(self, writer: ParsedSchema, roles: Roles = NEW_READS_OLD) -> list[str]:
        """Why data of `writer` cannot be read with this schema, in Confluent's words."""
        if not isinstance(writer, AvroSchema):
            return [DIFFERENT_TYPE]
        try:
            found = incompatibilities(self._schema, writer._schema)
        except NotComparable as error:
            return [f"Unexpected exception during compatibility check: {error}"]
        return [_described(reason, roles) for reason in found]


_DESCRIPTIONS = {
    "FIXED_SIZE_MISMATCH": (
        "The size of FIXED type field at path '{path}' in the {reader} schema does not match with the {writer} schema"
    ),
    "TYPE_MISMATCH": (
        "The type (path '{path}') of a field in the {reader} schema does not match with the {writer} schema"
    ),
    "NAME_MISMATCH": "The name of the schema has changed (path '{path}')",
    "MISSING_ENUM_SYMBOLS": (
        "The {reader} schema is missing enum symbols '{message}' at path '{path}' in the {writer} schema"
    ),
    "MISSING_UNION_BRANCH": (
        "The {reader} schema is missing a type inside a union field at path '{path}' in the {writer} schema"
    ),
    "READER_FIELD_MISSING_DEFAULT_VALUE": (
        "The field '{message}' at path '{path}' in the {reader} schema has no default value and is missing in the "
        "{writer} schema"
    ),
}


def _described(reason: Incompatibility, roles: Roles) -> str:
    description = _DESCRIPTIONS[reason.error].format(
        path=reason.location, message=reason.message, reader=roles.reader, writer=roles.writer
    )
    return f"{{errorType:'{reason.error}', description:'{description}', additionalInfo:'{reason.message}'}}"


__all__ = ["AvroSchema", "parse", "parse_registered"]
