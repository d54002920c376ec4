"""What a schema is, apart from where it is registered: text, format, references, metadata, rules, and its fingerprint.

Keeps true:  two contents are one schema, with one id in a context, if and only if their `identity` is equal.
             The guid is the MD5 of the text, the references, the metadata and the rules, as Confluent's registry
             computes it: both registries give a schema the same guid.
"""

from __future__ import annotations

import hashlib
import uuid

from felice.dataclass import dataclass
from felice.registry.formats.schema import Reference
from felice.registry.rules import Json, Metadata, RuleSet

AVRO = "AVRO"


@dataclass(frozen=True, slots=True)
class Content:
    """A schema. `given_md5` is the fingerprint that a record names itself: Confluent's registry writes it where it
    encrypted the metadata, so that the fingerprint cannot be computed from the record."""

    schema_type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Metadata | None = None
    rules: RuleSet | None = None
    given_md5: bytes | None = None

    def md5(self) -> bytes:
        """The 16 bytes of the fingerprint."""
        if self.given_md5 is not None:
            return self.given_md5
        digest = hashlib.md5(_encoded(self.text), usedforsecurity=False)
        for reference in self.references:
            digest.update(_encoded(reference.name))
            digest.update(_encoded(reference.subject))
            digest.update(reference.version.to_bytes(4, "big", signed=True))
        for part in (self.metadata, self.rules):
            if part is not None:
                digest.update(b"\x01")
                for text in part.hashed():
                    digest.update(_encoded(text))
        return digest.digest()

    def identity(self) -> bytes:
        """The key under which a context finds the schema's id: the fingerprint and, except for Avro, the format.

        Confluent's fingerprint leaves the format out, though one text may be a schema of two formats.
        """
        return self.md5() + (b"" if self.schema_type == AVRO else _encoded(self.schema_type))

    def guid(self) -> str:
        """The guid in its text form."""
        return guid_of(self.md5())

    def members(self) -> dict[str, Json]:
        """The JSON members that bodies and records share, in Confluent's order; empty ones and AVRO are left out."""
        made: dict[str, Json] = {}
        if self.schema_type != AVRO:
            made["schemaType"] = self.schema_type
        if self.references:
            made["references"] = [
                {"name": found.name, "subject": found.subject, "version": found.version}
                for found in self.references
            ]
        if self.metadata is not None:
            made["metadata"] = self.metadata.to_json()
        if self.rules is not None:
            made["ruleSet"] = self.rules.to_json()
        made["schema"] = self.text
        return made


def guid_of(md5: bytes) -> str:
    """A fingerprint in the form of a UUID."""
    return str(uuid.UUID(bytes=md5))


def md5_of_guid(text: str) -> bytes | None:
    """The fingerprint of a guid (with or without hyphens), or None if `text` is none."""
    try:
        return uuid.UUID(text).bytes
    except ValueError:
        return None


def _encoded(text: str) -> bytes:
    # Java encodes half a surrogate pair as a question mark.
    return text.encode("utf-8", "replace")
