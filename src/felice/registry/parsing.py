"""Parses schemas, and keeps the schemas that were used last.

Keeps true:  the cache holds at most `MAX_SCHEMAS` schemas with `MAX_CHARACTERS` of text together, so a registry with
             100,000 versions does not hold 100,000 parsed schemas.
How:         it may be called on several threads at once. Two of them may parse the same text; then one result is kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping

from felice.registry.errors import RegistryError, invalid_schema
from felice.registry.formats import FORMATS, REGISTERED_FORMATS
from felice.registry.formats.schema import InvalidSchema, Parse, ParsedSchema

MAX_SCHEMAS = 1_000
MAX_CHARACTERS = 4_000_000

References = tuple[tuple[str, str], ...]
"""The texts of referenced schemas by their names, each after those that it needs."""

_Key = tuple[str, str, References, bool]


class Parser:
    """See the module."""

    def __init__(
        self,
        formats: Mapping[str, Parse] = FORMATS,
        registered_formats: Mapping[str, Parse] | None = None,
    ) -> None:
        # Other parsers than the registry's own, as tests have, serve for both unless both are given.
        own = REGISTERED_FORMATS if formats is FORMATS else formats
        self._formats = formats
        self._registered_formats = own if registered_formats is None else registered_formats
        self._cache: OrderedDict[_Key, ParsedSchema] = OrderedDict()
        self._characters = 0
        self._lock = threading.Lock()

    @property
    def types(self) -> list[str]:
        """The formats' names, as `/schemas/types` lists them."""
        return sorted(self._formats, key=lambda name: (name == "AVRO", name))

    def parse(
        self, schema_type: str, text: str, references: References, *, registered: bool = False
    ) -> ParsedSchema:
        """The parsed schema. Raises `RegistryError` (42201) for an unknown type or a text that is no schema.

        `registered`: the text has a version, so checks that older registries did not have are left out.
        """
        key = (schema_type, text, references, registered)
        with self._lock:
            if (found := self._cache.get(key)) is not None:
                self._cache.move_to_end(key)
                return found
        parse = (self._registered_formats if registered else self._formats).get(schema_type)
        if parse is None:
            raise invalid_schema(f"Invalid schema type {schema_type}")
        try:
            parsed = parse(text, dict(references))
        except InvalidSchema as error:
            raise _invalid(schema_type, error) from None
        except ModuleNotFoundError as error:
            raise RegistryError(
                500, 500, f"schemas of the type {schema_type} need the module {error.name}"
            ) from error
        self._keep(key, parsed)
        return parsed

    def _keep(self, key: _Key, parsed: ParsedSchema) -> None:
        size = _size(key)
        if size > MAX_CHARACTERS:
            return
        with self._lock:
            if key not in self._cache:
                self._characters += size
            self._cache[key] = parsed
            while len(self._cache) > MAX_SCHEMAS or self._characters > MAX_CHARACTERS:
                oldest, _ = self._cache.popitem(last=False)
                self._characters -= _size(oldest)


def _size(key: _Key) -> int:
    return len(key[1]) + sum(len(text) for _, text in key[2])


def _invalid(schema_type: str, error: InvalidSchema) -> RegistryError:
    return invalid_schema(f"Invalid schema of type {schema_type}, details: {error}")
