"""What the registry needs of every schema format: a parser, and three questions to the parsed schema.

Keeps true:  a parsed schema is immutable, and its answers depend on its text and its references alone.
             A parser ends in bounded time and memory for every text: it returns a schema or raises `InvalidSchema`.
How:         each format is a module with a function `parse` of the type `Parse`; `felice.registry.formats.FORMATS`
             lists them. Nothing here or in the formats reads files or the network.
Leaves to others:  the modes of compatibility (`registry.compatibility`), and where referenced texts come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from felice.dataclass import dataclass

MAX_TEXT_BYTES = 5 * 1024 * 1024
"""Size limit of one schema's text, in bytes of UTF-8. References count separately."""

MAX_DEPTH = 200
"""How deep the arrays and objects of a schema's text may nest. Deeper texts raise `InvalidSchema`."""

DIFFERENT_TYPE = "Incompatible because of different schema type"
"""The only incompatibility between schemas of two formats, as Confluent's registry reports it."""


class InvalidSchema(Exception):
    """The text is not a schema of its format. The message says what is wrong and where, in one line.

    The REST API answers error 42201, and inserts the message after `Invalid schema …, details: `.
    """


@dataclass(frozen=True, slots=True)
class Reference:
    """A name that a schema's text uses, and the registered version that has its definition.

    `name` is a full name in Avro, a URI in JSON Schema and the path of an import in Protobuf.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Roles:
    """What the texts of incompatibilities call the two schemas of a comparison: `The new schema is missing …`."""

    reader: str
    writer: str


NEW_READS_OLD = Roles(reader="new", writer="old")
"""Backward compatibility: the schema that is to be registered reads data of a registered one."""

OLD_READS_NEW = Roles(reader="old", writer="new")
"""Forward compatibility."""


class ParsedSchema(Protocol):
    """A valid schema. `registry.formats` has a class for each format."""

    @property
    def schema_type(self) -> str:
        """`AVRO`, `JSON` or `PROTOBUF`."""

    @property
    def canonical(self) -> str:
        """The text that is stored, compared and returned. Equal texts are one schema.

        It uses referenced names and does not contain the definitions of references.
        """

    def normalized(self) -> str:
        """The text that is stored instead of `canonical` for `normalize=true`: equal for equivalent schemas.

        `parse` accepts this text with the same references.
        """

    def formatted(self, form: str) -> str:
        """The text in a form that the query parameter `format` names.

        The forms are `resolved` (Avro: with the definitions of the references), `serialized` (Protobuf: a
        FileDescriptorProto in base64) and `ignore_extensions` (Protobuf). The text is `canonical` for all others.
        Raises `InvalidSchema` if the text in that form would be beyond the limits.
        """

    def incompatibilities(self, writer: ParsedSchema, roles: Roles = NEW_READS_OLD) -> list[str]:
        """Why this schema, as the reader's, cannot read the data that was written with `writer`.

        An empty list means that it can: this schema is backward compatible with `writer`. Each reason has the shape
        `{errorType:'…', description:'…', additionalInfo:'…'}`, as Confluent's registry sends it to clients that ask
        for a verbose result, and calls this schema and `writer` by their `roles`. Schemas of two formats have the one
        reason `DIFFERENT_TYPE`. The comparison is pure, and may take seconds for the largest schemas: servers run it
        on a thread.
        """


class Parse(Protocol):
    """A format's parser."""

    def __call__(self, text: str, references: Mapping[str, str]) -> ParsedSchema:
        """Parses `text`. `references` are the texts of all referenced schemas by their reference names.

        They include the references of references, and each comes after those that it needs itself. A name that
        `text` uses and nothing defines raises `InvalidSchema`, as every other fault of a text does.
        """
