"""Whether a JSON schema accepts all data that another one describes, by the rules of Confluent's registry.

Keeps true:  every change that is found is one of `rules`; changes that are compatible there are not reported.
How:         a pair of schemas is compared by its kind (`model`), and returns the incompatible changes with paths that
             begin at the pair; `pairs` runs the comparisons. A reader's combination of several schemas must have a
             partner for each schema of the writer's, or the other way round for `allOf`: a maximum matching finds out.
Leaves out:  what Confluent's rules leave out, too: `format`, `contains`, `propertyNames`, `if`, and changes of
             `patternProperties` themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from felice.dataclass import dataclass
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
    Schema,
    Text,
    has_default,
    kind,
    resolved,
)
from felice.registry.formats.json_schema.patterns import matches
from felice.registry.formats.json_schema.rules import (
    ARRAY_LIMITS,
    COMPATIBLE,
    INCOMPATIBLE,
    NUMBER_LIMITS,
    OBJECT_LIMITS,
    TEXT_LIMITS,
    Limit,
)
from felice.registry.formats.json_text import Json, quoted
from felice.registry.formats.pairs import Comparisons, Pair, add

Path = tuple[str, ...]


@dataclass(slots=True, frozen=True)
class Change:
    """An incompatible change, by its name in `rules`, and the path to it in the reader's schema."""

    name: str
    path: Path


Changes = list[Change]
Question = tuple[Schema, Schema]
"""A reader's and a writer's schema."""

Steps = Generator[Question, Changes, Changes]


def incompatible_changes(reader: Schema, writer: Schema) -> Changes:
    """Why data of `writer` may be invalid for `reader`. Raises `pairs.NotComparable`."""
    return _Comparer().run(reader, writer)


class _Comparer:
    def __init__(self) -> None:
        self._digests = _Digests()
        self._comparisons: Comparisons[Question, Change] = Comparisons(
            _pair_of, _at_once, lambda question: self._compare(*map(resolved, question))
        )

    def run(self, reader: Schema, writer: Schema) -> Changes:
        return self._comparisons.run((reader, writer))

    def _compare(self, reader: Schema, writer: Schema) -> Steps:
        if isinstance(reader, Combined) is not isinstance(writer, Combined):
            for pair in _special_cases(reader, writer):
                if not (yield pair):
                    is_one_of_many = isinstance(reader, Combined) and len(reader.parts) > 1
                    return _changes("SUM_TYPE_EXTENDED") if is_one_of_many else []
        if kind(reader) != kind(writer):
            return _changes("TYPE_CHANGED")
        match reader, writer:
            case Text(), Text():
                return _limits(TEXT_LIMITS, reader.json, writer.json) + _pattern(reader.json, writer.json)
            case Number(), Number():
                return _number(reader, writer)
            case Enum(), Enum():
                return _enum(reader, writer)
            case Const(), Const():
                return _changes("ENUM_ARRAY_CHANGED", "const") if reader.value != writer.value else []
            case Not(), Not():
                # What the writer excludes must still include all that the reader excludes.
                return _changes(
                    f"NOT_TYPE_{'EXTENDED' if (yield writer.inner, reader.inner) else 'NARROWED'}", "not"
                )
            case Combined(), Combined():
                return (yield from self._combined(reader, writer))
            case Object(), Object():
                return (yield from _object(reader, writer))
            case Array(), Array():
                return (yield from _array(reader, writer))
        return []

    def _combined(self, reader: Combined, writer: Combined) -> Steps:
        found: Changes = []
        if reader.criterion != writer.criterion:
            found += _changes(f"COMBINED_TYPE_{'EXTENDED' if _is_wider(reader, writer) else 'CHANGED'}")
            if found:
                return found
        readers, writers = self._digests.distinct(reader.parts), self._digests.distinct(writer.parts)
        if len(readers) != len(writers):
            sort = "PRODUCT" if reader.criterion == "allOf" else "SUM"
            found += _changes(f"{sort}_TYPE_{'EXTENDED' if len(readers) > len(writers) else 'NARROWED'}")
        smaller = min(len(readers), len(writers))
        # Equal parts are partners, unless they refer to definitions that have changed.
        matched = 0
        for digest in [digest for digest in writers if digest in readers]:
            if not (yield readers[digest], writers[digest]):
                del readers[digest], writers[digest]
                matched += 1
        edges: list[list[int]] = []
        for part in writers.values():
            compatible = []
            for index, other in enumerate(readers.values()):
                if _may_match(other, part) and not (yield other, part):
                    compatible.append(index)
            edges.append(compatible)
        if matched + _matching(edges) < smaller:
            found += _changes("COMBINED_TYPE_SUBSCHEMAS_CHANGED")
        return found


def _pair_of(question: Question) -> Pair:
    return id(resolved(question[0])), id(resolved(question[1]))


def _at_once(question: Question) -> Changes | None:
    reader, writer = map(resolved, question)
    return [] if isinstance(reader, Anything) or isinstance(writer, Nothing) else None


def _special_cases(reader: Schema, writer: Schema) -> Iterator[Question]:
    """The pairs of which one must be compatible, so that a combination and a single schema are."""
    if isinstance(reader, Combined):
        if len(reader.parts) == 1 or reader.criterion != "allOf":
            yield from ((part, writer) for part in reader.parts)
    elif isinstance(writer, Combined) and len(writer.parts) == 1:
        yield reader, writer.parts[0]


def _is_wider(reader: Combined, writer: Combined) -> bool:
    """Whether another criterion accepts as much: `anyOf` does, and combinations of one schema mean the same."""
    if reader.criterion == "anyOf":
        return True
    return len(writer.parts) == 1 and (reader.criterion == "oneOf" or len(reader.parts) == 1)


def _may_match(reader: Schema, writer: Schema) -> bool:
    """False for schemas of two kinds, of which none is a special case: they need no comparison."""
    reader, writer = resolved(reader), resolved(writer)
    special = (Combined, Anything, Nothing)
    return kind(reader) == kind(writer) or isinstance(reader, special) or isinstance(writer, special)


def _matching(edges: list[list[int]]) -> int:
    """The size of a maximum matching. `edges` lists for each part of one side the partners on the other."""
    partner: dict[int, int] = {}
    for start in range(len(edges)):
        came_from: dict[int, int] = {}
        queue = [start]
        for node in queue:
            for other in edges[node]:
                if other in came_from:
                    continue
                came_from[other] = node
                if other not in partner:
                    _augment(partner, came_from, other, start)
                    queue.clear()
                    break
                queue.append(partner[other])
    return len(partner)


def _augment(partner: dict[int, int], came_from: dict[int, int], free: int, start: int) -> None:
    """Moves partners along the path that ends at a free one."""
    previous_of = {node: other for other, node in partner.items()}
    other: int | None = free
    while other is not None:
        node = came_from[other]
        partner[other] = node
        other = previous_of.get(node) if node != start else None


class _Digests:
    """Digests of JSON values, equal for values that differ in the order of members only. Each value is read once."""

    def __init__(self) -> None:
        self._known: dict[int, bytes] = {}

    def distinct(self, parts: list[Schema]) -> dict[Any, Schema]:
        """The parts without repetitions, by their digests. Parts of one JSON object differ in their kinds."""
        found: dict[Any, Schema] = {}
        for part in parts:
            integer = isinstance(part, Number) and part.is_integer
            found.setdefault((self.of(part.json), kind(part), integer, getattr(part, "criterion", "")), part)
        return found

    def of(self, json: Json) -> bytes:
        """The digest of a value."""
        if not isinstance(json, (dict, list)):
            return f"{type(json).__name__}{json}".encode()
        known = self._known.get(id(json))
        if known is None:
            if isinstance(json, dict):
                texts = [quoted(name).encode() + b":" + self.of(json[name]) for name in sorted(json)]
            else:
                texts = [self.of(inner) for inner in json]
            digest = hashlib.sha256(type(json).__name__.encode())
            for text in texts:
                digest.update(len(text).to_bytes(8) + text)
            known = self._known[id(json)] = digest.digest()
        return known


def _changes(name: str, *path: str) -> Changes:
    """The change as a list, if it is incompatible."""
    if name in COMPATIBLE:
        return []
    assert name in INCOMPATIBLE, name
    return [Change(name, path)]


def _at(path: Path, found: Changes) -> Changes:
    return [Change(change.name, path + change.path) for change in found]


def _limits(limits: tuple[Limit, ...], reader: Json, writer: Json) -> Changes:
    found: Changes = []
    for limit in limits:
        new, old = reader.get(limit.keyword), writer.get(limit.keyword)
        if new != old:
            if new is None or old is None:
                change = "ADDED" if old is None else "REMOVED"
            else:
                change = "INCREASED" if new > old else "DECREASED"
            found += _changes(f"{limit.name}_{change}", limit.keyword)
    return found


def _pattern(reader: Json, writer: Json) -> Changes:
    new, old = reader.get("pattern"), writer.get("pattern")
    if new == old:
        return []
    change = "ADDED" if old is None else "REMOVED" if new is None else "CHANGED"
    return _changes(f"PATTERN_{change}", "pattern")


def _number(reader: Number, writer: Number) -> Changes:
    found = _limits(NUMBER_LIMITS, reader.limits, writer.limits)
    found += _multiple_of(reader.limits.get("multipleOf"), writer.limits.get("multipleOf"))
    if reader.is_integer is not writer.is_integer:
        found += _changes("TYPE_NARROWED" if reader.is_integer else "TYPE_EXTENDED")
    return found


def _multiple_of(new: int | Decimal | None, old: int | Decimal | None) -> Changes:
    if new == old:
        return []
    if new is None or old is None:
        change = "ADDED" if old is None else "REMOVED"
    elif (Fraction(new) / Fraction(old)).denominator == 1:
        change = "EXPANDED"
    else:
        change = "REDUCED" if (Fraction(old) / Fraction(new)).denominator == 1 else "CHANGED"
    return _changes(f"MULTIPLE_OF_{change}", "multipleOf")


def _enum(reader: Enum, writer: Enum) -> Changes:
    if reader.values == writer.values:
        return []
    if reader.values > writer.values:
        return _changes("ENUM_ARRAY_EXTENDED", "enum")
    return _changes(f"ENUM_ARRAY_{'NARROWED' if reader.values < writer.values else 'CHANGED'}", "enum")


def _object(reader: Object, writer: Object) -> Steps:
    found = _required(reader, writer)
    for name, old in writer.properties.items():
        path, new = ("properties", name), reader.properties.get(name)
        add(found, _at(path, (yield new, old) if new else (yield from _removed_property(reader, name, old))))
    for name, new in reader.properties.items():
        if name not in writer.properties:
            add(found, _at(("properties", name), (yield from _added_property(reader, writer, name, new))))
    add(found, _dependent_names(reader, writer))
    add(found, (yield from _dependent_schemas(reader, writer)))
    add(
        found,
        (yield from _additional("PROPERTIES", "additionalProperties", reader.additional, writer.additional)),
    )
    inner = yield from _unevaluated(
        "PROPERTIES", "unevaluatedProperties", reader.unevaluated, writer.unevaluated
    )
    add(found, inner)
    add(found, _limits(OBJECT_LIMITS, reader.json, writer.json))
    return found


def _required(reader: Object, writer: Object) -> Changes:
    found: Changes = []
    for name in writer.properties:
        new = reader.properties.get(name)
        if new is None or (name in reader.required) is (name in writer.required):
            continue
        change = (
            "REMOVED" if name in writer.required else "WITH_DEFAULT_ADDED" if has_default(new) else "ADDED"
        )
        add(found, _changes(f"REQUIRED_ATTRIBUTE_{change}", "required", name))
    return found


def _removed_property(reader: Object, name: str, old: Schema) -> Steps:
    """Only the reader's content model decides: what it does not name, it must still accept."""
    if _is_open(reader):
        return _changes("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL")
    partial = _partial(reader, name)
    if partial is None:
        is_false = isinstance(resolved(old), Nothing)
        return _changes(f"PROPERTY_{'WITH_FALSE_' if is_false else ''}REMOVED_FROM_CLOSED_CONTENT_MODEL")
    found = yield partial, old
    covered = "NOT_COVERED" if found else "IS_COVERED"
    return found + _changes(f"PROPERTY_REMOVED_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL")


def _added_property(reader: Object, writer: Object, name: str, new: Schema) -> Steps:
    """Only the writer's content model decides: it may have accepted other values under the name."""
    if isinstance(resolved(new), Anything) and _is_open(writer):
        return _changes("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL")
    added = "OPTIONAL_PROPERTY_ADDED"
    if name in reader.required:
        added = f"REQUIRED_PROPERTY_{'WITH_DEFAULT_' if has_default(new) else ''}ADDED"
    if _is_open(writer):
        return _changes(f"{added}_TO_OPEN_CONTENT_MODEL")
    found: Changes = []
    partial = _partial(writer, name)
    if partial is not None:
        found += yield new, partial
        covered = "NOT_COVERED" if found else "IS_COVERED"
        found += _changes(f"PROPERTY_ADDED_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL")
    return found + _changes(f"{added}_TO_UNOPEN_CONTENT_MODEL")


def _is_open(schema: Object) -> bool:
    return not schema.patterns and schema.additional is True and _is_open_behind(schema.unevaluated)


def _is_open_behind(unevaluated: Schema | None) -> bool:
    return unevaluated is None or isinstance(resolved(unevaluated), Anything)


def _is_closed_behind(unevaluated: Schema | None) -> bool:
    return unevaluated is not None and isinstance(resolved(unevaluated), Nothing)


def _partial(schema: Object, name: str) -> Schema | None:
    """The schema of a property that is not named; None if there is none, in a closed content model."""
    for pattern, inner in schema.patterns.items():
        if matches(pattern, name):
            return inner
    return _behind(schema.additional, schema.unevaluated)


def _behind(additional: Schema | bool, unevaluated: Schema | None) -> Schema | None:
    if not isinstance(additional, bool):
        return additional
    return unevaluated if additional and not _is_closed_behind(unevaluated) else None


def _dependent_names(reader: Object, writer: Object) -> Changes:
    found: Changes = []
    for name in _names(writer.dependent_names, reader.dependent_names):
        new, old = reader.dependent_names.get(name), writer.dependent_names.get(name)
        if new == old:
            continue
        if new is None or old is None:
            change = "ADDED" if old is None else "REMOVED"
        else:
            change = "EXTENDED" if new > old else "NARROWED" if new < old else "CHANGED"
        add(found, _changes(f"DEPENDENCY_ARRAY_{change}", "dependencies", name))
    return found


def _dependent_schemas(reader: Object, writer: Object) -> Steps:
    found: Changes = []
    for name in _names(writer.dependent_schemas, reader.dependent_schemas):
        new, old = reader.dependent_schemas.get(name), writer.dependent_schemas.get(name)
        if new is None or old is None:
            change = "ADDED" if old is None else "REMOVED"
            add(found, _changes(f"DEPENDENCY_SCHEMA_{change}", "dependencies", name))
        else:
            add(found, _at(("dependencies", name), (yield new, old)))
    return found


def _names(one: Mapping[str, object], other: Mapping[str, object]) -> Iterable[str]:
    """The names of both, those of the first before the others."""
    return dict.fromkeys([*one, *other])


def _additional(what: str, keyword: str, new: Schema | bool, old: Schema | bool) -> Steps:
    """Changes of `additionalProperties` or `additionalItems`."""
    if (new is False) is not (old is False):
        return _changes(f"ADDITIONAL_{what}_{'REMOVED' if new is False else 'ADDED'}", keyword)
    if isinstance(new, bool) and isinstance(old, bool):
        return []
    if isinstance(new, bool) or isinstance(old, bool):
        return _changes(f"ADDITIONAL_{what}_{'EXTENDED' if isinstance(new, bool) else 'NARROWED'}", keyword)
    return _at((keyword,), (yield new, old))


def _unevaluated(what: str, keyword: str, new: Schema | None, old: Schema | None) -> Steps:
    """Changes of `unevaluatedProperties` or `unevaluatedItems`. Without the keyword, everything is accepted."""
    if _is_closed_behind(new) is not _is_closed_behind(old):
        return _changes(f"UNEVALUATED_{what}_{'REMOVED' if _is_closed_behind(new) else 'ADDED'}", keyword)
    if _is_open_behind(new) is not _is_open_behind(old):
        return _changes(f"UNEVALUATED_{what}_{'EXTENDED' if _is_open_behind(new) else 'NARROWED'}", keyword)
    return [] if new is None or old is None else _at((keyword,), (yield new, old))


def _array(reader: Array, writer: Array) -> Steps:
    found: Changes = []
    if reader.items is not None and writer.items is not None:
        add(found, _at(("items",), (yield reader.items, writer.items)))
    elif reader.items is not writer.items:
        add(found, _changes(f"SCHEMA_{'ADDED' if writer.items is None else 'REMOVED'}", "items"))
    for index, old in enumerate(writer.tuple):
        path = ("items", str(index))
        if index < len(reader.tuple):
            add(found, _at(path, (yield reader.tuple[index], old)))
        else:
            add(found, _at(path, (yield from _removed_item(reader, old))))
    for index, new in enumerate(reader.tuple[len(writer.tuple) :], len(writer.tuple)):
        add(found, _at(("items", str(index)), (yield from _added_item(writer, new))))
    add(found, (yield from _additional("ITEMS", "additionalItems", reader.additional, writer.additional)))
    add(found, (yield from _unevaluated("ITEMS", "unevaluatedItems", reader.unevaluated, writer.unevaluated)))
    add(found, _limits(ARRAY_LIMITS, reader.json, writer.json))
    is_new, is_old = (schema.json.get("uniqueItems") is True for schema in (reader, writer))
    if is_new is not is_old:
        add(found, _changes(f"UNIQUE_ITEMS_{'ADDED' if is_new else 'REMOVED'}", "uniqueItems"))
    return found


def _removed_item(reader: Array, old: Schema) -> Steps:
    if reader.additional is True and _is_open_behind(reader.unevaluated):
        return _changes("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL")
    partial = _behind(reader.additional, reader.unevaluated)
    if partial is None:
        is_false = isinstance(resolved(old), Nothing)
        return _changes(f"ITEM_{'WITH_FALSE_' if is_false else ''}REMOVED_FROM_CLOSED_CONTENT_MODEL")
    found = yield partial, old
    covered = "NOT_COVERED" if found else "IS_COVERED"
    return found + _changes(f"ITEM_REMOVED_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL")


def _added_item(writer: Array, new: Schema) -> Steps:
    if writer.additional is True and _is_open_behind(writer.unevaluated):
        is_empty = isinstance(resolved(new), Anything)
        return _changes(f"ITEM_{'WITH_EMPTY_SCHEMA_' if is_empty else ''}ADDED_TO_OPEN_CONTENT_MODEL")
    partial = _behind(writer.additional, writer.unevaluated)
    if partial is None:
        return _changes("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL")
    found = yield new, partial
    covered = "NOT_COVERED" if found else "IS_COVERED"
    return found + _changes(f"ITEM_ADDED_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL")
