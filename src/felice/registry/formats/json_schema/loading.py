"""From the JSON of a schema to its model: keywords are checked, and references resolved.

Keeps true:  every reference of a loaded schema has its target, in the text itself, in one of the references that were
             given, or in a metaschema. Nothing is ever fetched.
             Schemas are loaded one after the other, not one inside the other: neither the depth of a text nor a
             chain of references uses Python's stack.
How:         `referencing` finds the targets: by its rules for each draft, URIs are resolved against `$id`, and anchors
             and JSON pointers looked up. Reference names are URIs, absolute or relative to the `$id` of the schema or
             of another reference.
Leaves out:  definitions that nothing refers to; they may hold anything, as in Confluent's registry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urljoin

import referencing.exceptions
from jsonschema_specifications import REGISTRY as METASCHEMAS
from referencing import Registry, Resource
from referencing.jsonschema import (
    DRAFT3,
    DRAFT4,
    DRAFT6,
    DRAFT7,
    DRAFT201909,
    DRAFT202012,
    lookup_recursive_ref,
    specification_with,
)

from felice.registry.formats.json_schema.keywords import OF_DRAFT, REFERENCES
from felice.registry.formats.json_schema.model import (
    Anything,
    Array,
    Combined,
    Const,
    Enum,
    Not,
    Nothing,
    Number,
    Object,
    Reference,
    Schema,
    Simple,
    Text,
)
from felice.registry.formats.json_text import Json, encode, shown, sorted_json
from felice.registry.formats.schema import InvalidSchema

_DRAFTS = {DRAFT3: 4, DRAFT4: 4, DRAFT6: 6, DRAFT7: 7, DRAFT201909: 2019, DRAFT202012: 2020}
_COMBINATIONS = ("allOf", "anyOf", "oneOf")
_TEXT_KEYWORDS = frozenset(("maxLength", "minLength", "pattern"))
_NUMBER_KEYWORDS = frozenset(("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"))
_OBJECT_KEYWORDS = frozenset(
    (
        "properties",
        "patternProperties",
        "additionalProperties",
        "unevaluatedProperties",
        "propertyNames",
        "required",
        "maxProperties",
        "minProperties",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
    )
)
_ARRAY_KEYWORDS = frozenset(
    (
        "items",
        "prefixItems",
        "additionalItems",
        "unevaluatedItems",
        "contains",
        "maxContains",
        "minContains",
        "maxItems",
        "minItems",
        "uniqueItems",
    )
)
_MAX_BASES = 50
"""Limit of the references whose `$id` is also a base for the names of references."""

Resolver = Any
"""A `referencing` resolver: its type is not public."""


def load(json: Json, references: Mapping[str, Json]) -> Schema:
    """The model of a schema. `references` are the decoded texts by their names. Raises `InvalidSchema`."""
    if not isinstance(json, (dict, bool)):
        raise InvalidSchema(f"Invalid JSON Schema: an object or a boolean is expected, not {shown(json)}")
    return _Loader(json, references).load(json)


def specification(json: Json) -> referencing.Specification[Json]:
    """The draft that `$schema` names. Draft 7 is that of all others, as in Confluent's registry."""
    named = json.get("$schema") if isinstance(json, dict) else None
    if not isinstance(named, str):
        return DRAFT7
    return specification_with(named, default=DRAFT7)


class _Loader:
    def __init__(self, json: Json, references: Mapping[str, Json]) -> None:
        root = specification(json).create_resource(json)
        named = {name: specification(text).create_resource(text) for name, text in references.items()}
        base = _id_of(root)
        registry: Registry[Json] = Registry().combine(METASCHEMAS)
        registry = registry.with_resources(_located(base, named)).with_resource(base, root)
        self._is_crawled = True
        try:
            # At once: a lookup in a registry that is not crawled crawls all of it again.
            registry = registry.crawl()
        except (ValueError, LookupError, TypeError, AttributeError):
            self._is_crawled = False
        self._resolver = registry.resolver(base)
        self._known: dict[tuple[int, int], Reference] = {}
        self._pending: deque[tuple[Reference, Callable[[], Schema]]] = deque()

    def load(self, json: Json) -> Schema:
        """The schema, with all that it contains and refers to."""
        root = self.schema(json, self._resolver, _DRAFTS[specification(json)], "#")
        found: list[Reference] = []
        while self._pending:
            reference, target = self._pending.popleft()
            reference.target = target()
            found.append(reference)
        _require_ends(found)
        return root

    def schema(self, json: Json, resolver: Resolver, draft: int, path: str) -> Schema:
        """The schema of a JSON value, as a reference that gets its target later."""
        if isinstance(json, bool):
            return Anything(json) if json else Nothing(json)
        known = self._known.get((id(json), draft))
        if known is None:
            known = self._known[id(json), draft] = Reference(json)
            self._pending.append((known, lambda: self._object(json, resolver, draft, path)))
        return known

    def refer(self, json: Json, keyword: str, resolver: Resolver, draft: int, path: str) -> Reference:
        """The schema that a keyword refers to."""
        reference = Reference(json)
        self._pending.append((reference, lambda: self._target(json[keyword], keyword, resolver, draft, path)))
        return reference

    def _target(self, uri: str, keyword: str, resolver: Resolver, draft: int, path: str) -> Schema:
        if not self._is_crawled:
            raise _invalid(path, f"{keyword} cannot be resolved: keywords of the schema have wrong values")
        try:
            target = lookup_recursive_ref(resolver) if keyword == "$recursiveRef" else resolver.lookup(uri)
            document = target.resolver.lookup("#").contents
        except referencing.exceptions.Unresolvable as error:
            raise _invalid(path, f"{keyword} {shown(uri)} is not in the schema or its references") from error
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise _invalid(path, f"{keyword} {shown(uri)} cannot be resolved") from error
        if not isinstance(target.contents, (dict, bool)):
            raise _invalid(
                path, f"{keyword} {shown(uri)} refers to {shown(target.contents)}, which is no schema"
            )
        if isinstance(document, dict) and "$schema" in document:
            draft = _DRAFTS[specification(document)]
        return self.schema(target.contents, target.resolver, draft, uri)

    def _object(self, json: dict[str, Json], resolver: Resolver, draft: int, path: str) -> Schema:
        if "$schema" in json:
            draft = _DRAFTS[specification(json)]
        keywords = OF_DRAFT[draft]
        own = {name: value for name, value in json.items() if name in keywords}
        if "$ref" in own and draft <= 7:
            # Until draft 7 the keywords beside `$ref` have no meaning.
            own = {"$ref": own["$ref"]}
        for name, value in own.items():
            if not keywords[name].fits(value):
                raise _invalid(path, f"{name} must be {keywords[name].expected}, not {shown(value)}")
        resource = _SPECIFICATIONS[draft].create_resource(json)
        if path != "#" and _id_of(resource):
            resolver = resolver.in_subresource(resource)
        parts = _Parts(self, json, own, resolver, draft, path).all()
        if not parts:
            return Anything(json)
        return parts[0] if len(parts) == 1 else Combined(json, "allOf", parts)


def _located(base: str, named: Mapping[str, Resource[Json]]) -> Iterator[tuple[str, Resource[Json]]]:
    """The references by all URIs that a schema may call them by."""
    bases = [base, *map(_id_of, list(named.values())[:_MAX_BASES])]
    for name, resource in named.items():
        for uri in dict.fromkeys([name, f"./{name}", *(urljoin(other, name) for other in bases)]):
            yield uri, resource


def _id_of(resource: Resource[Json]) -> str:
    try:
        return resource.id() or ""
    except (AttributeError, TypeError):
        raise InvalidSchema(
            f"Invalid JSON Schema: the id of {shown(resource.contents)} is not a URI"
        ) from None


_SPECIFICATIONS = {4: DRAFT4, 6: DRAFT6, 7: DRAFT7, 2019: DRAFT201909, 2020: DRAFT202012}


class _Parts:
    """The schemas that one JSON object combines."""

    def __init__(
        self,
        loader: _Loader,
        json: dict[str, Json],
        own: dict[str, Json],
        resolver: Resolver,
        draft: int,
        path: str,
    ) -> None:
        self._loader, self._json, self._own = loader, json, own
        self._resolver, self._draft, self._path = resolver, draft, path

    def all(self) -> list[Schema]:
        json, own = self._json, self._own
        parts: list[Schema] = [
            self._loader.refer(json, name, self._resolver, self._draft, self._path)
            for name in REFERENCES
            if name in own
        ]
        if "enum" in own:
            parts.append(Enum(json, frozenset(encode(sorted_json(value)) for value in own["enum"])))
        if "const" in own:
            parts.append(Const(json, encode(sorted_json(own["const"]))))
        parts += [Combined(json, name, self._list(name)) for name in _COMBINATIONS if name in own]
        if "not" in own:
            parts.append(Not(json, self._inner(own["not"], "not")))
        if "if" in own:
            for name in ("if", "then", "else"):
                if name in own:
                    self._inner(own[name], name)
            parts.append(Simple(json, "if"))
        return parts + self._typed()

    def _typed(self) -> list[Schema]:
        """The schema of `type`, or those of the kinds whose keywords there are."""
        type_ = self._own.get("type")
        if isinstance(type_, list):
            return [Combined(self._json, "anyOf", [self._of_type(name) for name in dict.fromkeys(type_)])]
        if type_ is not None:
            return [self._of_type(type_)]
        kinds = {
            "object": _OBJECT_KEYWORDS,
            "array": _ARRAY_KEYWORDS,
            "number": _NUMBER_KEYWORDS,
            "string": _TEXT_KEYWORDS,
        }
        return [self._of_type(name) for name, keywords in kinds.items() if not keywords.isdisjoint(self._own)]

    def _of_type(self, name: str) -> Schema:
        match name:
            case "object":
                return self._object()
            case "array":
                return self._array()
            case "string":
                return Text(self._json)
            case "number" | "integer":
                return Number(self._json, self._limits(), name == "integer")
        return Simple(self._json, name)

    def _limits(self) -> dict[str, Json]:
        limits = {name: value for name, value in self._own.items() if name in _NUMBER_KEYWORDS}
        if self._draft == 4:
            # `exclusiveMaximum: true` is beside `maximum` there; later drafts have the number instead.
            for name, limit in (("exclusiveMaximum", "maximum"), ("exclusiveMinimum", "minimum")):
                if limits.pop(name, False) and limit in limits:
                    limits[name] = limits[limit]
        return limits

    def _object(self) -> Object:
        own = self._own
        names, schemas = dict(own.get("dependentRequired", {})), self._map("dependentSchemas")
        for name, value in own.get("dependencies", {}).items():
            if isinstance(value, list):
                names[name] = value
            else:
                schemas[name] = self._inner(value, f"dependencies/{name}")
        if "propertyNames" in own:
            self._inner(own["propertyNames"], "propertyNames")
        return Object(
            self._json,
            self._map("properties"),
            self._map("patternProperties"),
            self._flag_or_schema("additionalProperties"),
            self._optional("unevaluatedProperties"),
            frozenset(own.get("required", ())),
            {name: frozenset(others) for name, others in names.items()},
            schemas,
        )

    def _array(self) -> Array:
        own = self._own
        if "contains" in own:
            self._inner(own["contains"], "contains")
        unevaluated = self._optional("unevaluatedItems")
        if "prefixItems" in own:
            return Array(
                self._json, None, self._list("prefixItems"), self._flag_or_schema("items"), unevaluated
            )
        additional = self._flag_or_schema("additionalItems")
        if isinstance(own.get("items"), list):
            return Array(self._json, None, self._list("items"), additional, unevaluated)
        items = None if own.get("items") in (True, {}) else self._optional("items")
        return Array(self._json, items, [], additional, unevaluated)

    def _inner(self, json: Json, name: str) -> Schema:
        return self._loader.schema(json, self._resolver, self._draft, f"{self._path}/{name}")

    def _optional(self, name: str) -> Schema | None:
        return self._inner(self._own[name], name) if name in self._own else None

    def _flag_or_schema(self, name: str) -> Schema | bool:
        value = self._own.get(name, True)
        if isinstance(value, bool):
            return value
        # An empty schema means the same as `true`.
        return self._inner(value, name) if value else True

    def _list(self, name: str) -> list[Schema]:
        return [self._inner(inner, f"{name}/{index}") for index, inner in enumerate(self._own[name])]

    def _map(self, name: str) -> dict[str, Schema]:
        return {key: self._inner(inner, f"{name}/{key}") for key, inner in self._own.get(name, {}).items()}


def _require_ends(references: list[Reference]) -> None:
    """Raises `InvalidSchema` if references refer to each other in a ring without a schema."""
    ends: set[int] = set()
    for reference in references:
        chain: set[int] = set()
        schema: Schema | None = reference
        while isinstance(schema, Reference) and id(schema) not in ends:
            if id(schema) in chain:
                raise InvalidSchema(f"Invalid JSON Schema: {shown(reference.json)} refers to itself")
            chain.add(id(schema))
            schema = schema.target
        ends |= chain


def _invalid(path: str, reason: str) -> InvalidSchema:
    return InvalidSchema(f"Invalid JSON Schema: {path[:300]}: {reason}")
