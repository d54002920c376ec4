"""Schemas that serializers have parsed, and the schemas that these refer to; as steps.

Keeps true:  a cycle of references, or more than `MAX_REFERENCES`, is refused.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from felice.client.schema_registry.caches import Cache
from felice.client.schema_registry.model import RegisteredSchema, Schema
from felice.client.schema_registry.steps import Ask, Steps
from felice.client.serialization import SerializationError

MAX_REFERENCES = 1000
"""How many schemas one schema may refer to, directly and indirectly."""

P = TypeVar("P")
Made = TypeVar("Made", covariant=True)
References = list[tuple[str, str]]
"""Names of referenced schemas with their texts; each stands after those that it refers to itself."""


class Format(Protocol[Made]):
    """A type of schemas: how a text becomes a parsed schema. All of it is pure."""

    schema_type: str
    fmt: str | None
    """The format in which the registry shall return texts of this type; None for the usual one."""

    def is_known(self, name: str) -> bool:
        """Whether a reference by this name needs no schema of the registry."""
        ...

    def parse(self, text: str, references: References) -> Made:
        """Parse a schema. Raises what the format's library raises for a schema that is not valid."""
        ...


class Parser(Generic[P]):
    """Parses each schema once, as long as it stays in the cache."""

    def __init__(self, form: Format[P]) -> None:
        self.form = form
        self._parsed: Cache[Schema, P] = Cache()

    def parsed(self, schema: Schema) -> Steps[P]:
        """Return a parsed schema. Asks the registry for the schemas that it refers to."""
        known = self._parsed.get(schema)
        if known is None:
            references: References = []
            yield from self._collect(schema, references, set(), ())
            known = self.form.parse(_text(schema), references)
            self._parsed.put(schema, known)
        return known

    def _collect(
        self,
        schema: Schema,
        found: References,
        seen: set[tuple[str, str, int]],
        path: tuple[tuple[str, int], ...],
    ) -> Steps[None]:
        for reference in schema.references or ():
            name, subject, version = reference.name, reference.subject, reference.version
            if name is not None and self.form.is_known(name):
                continue
            if name is None or subject is None or version is None:
                raise SerializationError(
                    f"a reference of a schema lacks its name, subject or version: {reference}"
                )
            if (subject, version) in path:
                raise SerializationError(f"the schema {subject} version {version} refers to itself")
            if (name, subject, version) in seen:
                continue
            seen.add((name, subject, version))
            if len(seen) > MAX_REFERENCES:
                raise SerializationError(f"a schema refers to more than {MAX_REFERENCES} schemas")
            used: RegisteredSchema = yield self._ask(subject, version)
            yield from self._collect(used.schema, found, seen, (*path, (subject, version)))
            found.append((name, _text(used.schema)))

    def _ask(self, subject: str, version: int) -> Ask:
        form = () if self.form.fmt is None else (self.form.fmt,)
        return Ask("get_version", subject, version, True, *form)


def _text(schema: Schema) -> str:
    if schema.schema_str is None:
        raise SerializationError("the registry returned a schema without a text")
    return schema.schema_str
