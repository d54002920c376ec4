"""The schema formats: their parsers by the names that the REST API uses (`schemaType`).

A format's module and its library are imported when the format is first used: a registry with schemas of one format
does not load the others' libraries.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from felice.registry.formats.schema import Parse, ParsedSchema


def _late(module: str, function: str = "parse") -> Parse:
    """A function of a module of this package, which the first call imports."""

    def parse(text: str, references: Mapping[str, str]) -> ParsedSchema:
        parsed: ParsedSchema = getattr(import_module(f"{__name__}.{module}"), function)(text, references)
        return parsed

    return parse


FORMATS: Mapping[str, Parse] = {
    "AVRO": _late("avro"),
    "JSON": _late("json_schema"),
    "PROTOBUF": _late("protobuf"),
}

REGISTERED_FORMATS: Mapping[str, Parse] = {
    **FORMATS,
    "AVRO": _late("avro", "parse_registered"),
    "JSON": _late("json_schema", "parse_registered"),
}
"""The parsers of texts that are already registered.

Avro's accepts defaults that do not fit their fields, and JSON Schema's names that are reserved since: older registries
did not check them, so topics that they wrote hold such schemas.
"""
