"""A Protobuf schema: what the registry stores, returns and compares of it."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from felice.dataclass import dataclass
from felice.registry.formats.protobuf.compiler import Compiler
from felice.registry.formats.protobuf.rules import differences
from felice.registry.formats.schema import (
    DIFFERENT_TYPE,
    MAX_TEXT_BYTES,
    NEW_READS_OLD,
    InvalidSchema,
    ParsedSchema,
    Roles,
)

MAX_REFERENCES = 1000
"""Schemas that one schema may import, directly or not."""

MAX_REFERENCES_BYTES = 4 * MAX_TEXT_BYTES
"""Size limit of the texts of all references of a schema, in bytes of UTF-8."""

# protoc takes import paths as command line arguments, in which `:` and `=` have a meaning.
_IMPORT_PATH = re.compile(r"[^\x00-\x1f\x7f:=\\/]+(/[^\x00-\x1f\x7f:=\\/]+)*")
_MAX_IMPORT_PATH_LENGTH = 1000

_COMPILER = Compiler()


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """A valid schema of Protobuf."""

    canonical: str
    """.proto text without comments, also for a schema that came as a descriptor. Names of types are as written."""

    references: Mapping[str, str]
    """The texts of the imports by their paths, each after those that it imports."""

    descriptors: bytes
    """A FileDescriptorSet of all imports, and of the schema itself as the last file, compressed with zlib.

    Registries keep many schemas. Most with custom options import 10 KiB of descriptors for them.
    """

    @property
    def schema_type(self) -> str:
        """`PROTOBUF`."""
        return "PROTOBUF"

    def normalized(self) -> str:
        """`canonical` with full names of types, and with its imports in alphabetical order."""
        return _COMPILER.compile(self.canonical, self.references, "normalized")[0]

    def formatted(self, form: str) -> str:
        """The FileDescriptorProto in base64 for `serialized`; the text without extensions for `ignore_extensions`."""
        if form == "serialized":
            return base64.b64encode(self._files()[-1].SerializeToString()).decode()
        if form == "ignore_extensions":
            return _COMPILER.compile(self.canonical, self.references, "ignore_extensions")[0]
        return self.canonical

    def incompatibilities(self, writer: ParsedSchema, roles: Roles = NEW_READS_OLD) -> list[str]:
        """Why this schema cannot read the data that was written with `writer`, by the table in `rules`."""
        if not isinstance(writer, ProtobufSchema):
            return [DIFFERENT_TYPE]
        if writer.descriptors == self.descriptors:
            return []
        return [difference.text(roles) for difference in differences(self._files(), writer._files())]

    def _files(self) -> Sequence[Any]:
        files: Sequence[Any] = FileDescriptorSet.FromString(zlib.decompress(self.descriptors)).file
        return files


def parse(text: str, references: Mapping[str, str]) -> ProtobufSchema:
    """Parses .proto text, or a FileDescriptorProto in base64, as clients send both.

    The names of `references` are import paths. Files of `known_files` need no reference. Raises `InvalidSchema`.
    """
    _check_size("the text", [text], MAX_TEXT_BYTES)
    _check_size("the text of all references", references.values(), MAX_REFERENCES_BYTES)
    if len(references) > MAX_REFERENCES:
        raise InvalidSchema(f"the schema has {len(references)} references; {MAX_REFERENCES} are allowed")
    for name in references:
        _check_import_path(name)
    if not text.strip():
        raise InvalidSchema("the schema is empty")
    canonical, descriptors = _COMPILER.compile(text, references, "canonical")
    return ProtobufSchema(canonical, dict(references), zlib.compress(descriptors))


def _check_size(what: str, texts: Iterable[str], limit: int) -> None:
    try:
        size = sum(len(text.encode()) for text in texts)
    except UnicodeEncodeError:
        raise InvalidSchema(f"{what} has characters that UTF-8 cannot encode") from None
    if size > limit:
        raise InvalidSchema(f"{what} has {size} bytes; {limit} are allowed")


def _check_import_path(name: str) -> None:
    valid = len(name) <= _MAX_IMPORT_PATH_LENGTH and _IMPORT_PATH.fullmatch(name)
    if not valid or {".", ".."} & set(name.split("/")):
        raise InvalidSchema(f"the name {name[:80]!r} of a reference cannot be imported")
