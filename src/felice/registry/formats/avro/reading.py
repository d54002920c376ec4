"""Whether data of one Avro schema can be read with another, as Java's `SchemaCompatibility` decides it.

Keeps true:  a pair of types is compared at the place where it is met first (`pairs` says how).
             The branches of a union are found by name and kind: Java's library compares all pairs of branches.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from felice.dataclass import dataclass
from felice.registry.formats.avro.model import (
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Schema,
    Union,
    alias_texts,
)
from felice.registry.formats.pairs import Comparisons, NotComparable, Pair, add

_PROMOTIONS = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
"""The writer's types, other than the same, that a reader's primitive type reads."""

Location = tuple["Location", str] | None
"""A path into the reader's schema, as its last step and the path before it. None is the schema itself."""


@dataclass(slots=True, frozen=True)
class Incompatibility:
    """A reason why data cannot be read. `location` is a JSON pointer into the reader's schema."""

    error: str
    location: str
    message: str


Found = list[Incompatibility]
Comparison = tuple[Schema, Schema, Location]
Steps = Generator[Comparison, Found, Found]


def incompatibilities(reader: Schema, writer: Schema) -> list[Incompatibility]:
    """Why data of `writer` cannot be read with `reader`; empty if it can. Raises `NotComparable`."""
    return _Comparer().run((reader, writer, None))


class _Comparer:
    def __init__(self) -> None:
        self._candidates: dict[int, _Candidates] = {}
        self._comparisons = Comparisons(_pair_of, _at_once, lambda comparison: self._compare(*comparison))

    def run(self, first: Comparison) -> Found:
        """Runs a comparison and those that it needs."""
        return self._comparisons.run(first)

    def _compare(self, reader: Schema, writer: Schema, location: Location) -> Steps:
        match reader, writer:
            case Union(), Union():
                return self._compare_unions(reader, writer, location)
            case _, Union():
                return self._compare_branches(reader, writer, location)
            case Union(), _:
                return self._find_branch(reader, writer, location)
            case Array(), Array():
                return _inner((reader.items, writer.items, (location, "items")))
            case Map(), Map():
                return _inner((reader.values, writer.values, (location, "values")))
            case Record(), Record():
                return self._compare_records(reader, writer, location)
            case Enum(), Enum():
                return _done(
                    _compare_names(reader, writer, location) + _compare_symbols(reader, writer, location)
                )
            case Fixed(), Fixed():
                return _done(
                    _compare_names(reader, writer, location) + _compare_sizes(reader, writer, location)
                )
        return _done([_type_mismatch(reader, writer, location)])

    def _compare_unions(self, reader: Union, writer: Union, location: Location) -> Steps:
        found: Found = []
        for index, branch in enumerate(writer.branches):
            if (yield reader, branch, None):
                found.append(_missing_branch(branch, (location, str(index))))
        return found

    def _compare_branches(self, reader: Schema, writer: Union, location: Location) -> Steps:
        found: Found = []
        for index, branch in enumerate(writer.branches):
            add(found, (yield reader, branch, (location, str(index))))
        return found

    def _find_branch(self, reader: Union, writer: Schema, location: Location) -> Steps:
        candidates = self._candidates.get(id(reader))
        if candidates is None:
            candidates = self._candidates[id(reader)] = _Candidates(reader)
        if not candidates.ids.isdisjoint(self._comparisons.open_readers(writer)):
            return []
        for branch in candidates.of(writer):
            if not (yield branch, writer, None):
                return []
        return [_missing_branch(writer, location)]

    def _compare_records(self, reader: Record, writer: Record, location: Location) -> Steps:
        found = _compare_names(reader, writer, location)
        for index, field in enumerate(reader.fields):
            place = ((location, "fields"), str(index))
            of_writer = _writers_field(field, writer)
            if of_writer is not None:
                add(found, (yield field.type, of_writer.type, (place, "type")))
            elif not field.has_default:
                if isinstance(field.type, Enum) and field.type.default is not None:
                    # So does Java: the enum's default is no default of the field, but the reason is another.
                    add(found, (yield field.type, writer, (place, "type")))
                else:
                    found.append(_incompatible("READER_FIELD_MISSING_DEFAULT_VALUE", place, field.name))
        return found


class _Candidates:
    """The branches of a reader's union that may read a writer's type, without looking into them."""

    def __init__(self, union: Union) -> None:
        self.ids = frozenset(map(id, union.branches))
        self._branches = union.branches
        self._by_kind: dict[str, list[Schema]] = {}
        self._by_name: dict[str, list[int]] = {}
        for index, branch in enumerate(union.branches):
            if isinstance(branch, Named):
                # A branch reads a type of its own name in any namespace, and those that its aliases name.
                for name in {branch.name.simple, *(f"={alias}" for alias in alias_texts(branch))}:
                    self._by_name.setdefault(name, []).append(index)
            else:
                self._by_kind.setdefault(branch.kind, []).append(branch)
                for kind in _PROMOTIONS.get(branch.kind, ()):
                    self._by_kind.setdefault(kind, []).append(branch)

    def of(self, writer: Schema) -> Iterable[Schema]:
        if not isinstance(writer, Named):
            return self._by_kind.get(writer.kind, ())
        by_name = self._by_name.get(writer.name.simple, [])
        by_alias = self._by_name.get(f"={writer.name.full}", [])
        # In the union's order: Java looks no further than the first branch that reads the type.
        return [self._branches[index] for index in sorted({*by_name, *by_alias})]


def _pair_of(comparison: Comparison) -> Pair:
    return id(comparison[0]), id(comparison[1])


def _at_once(comparison: Comparison) -> Found | None:
    reader, writer, location = comparison
    if isinstance(reader, Primitive) and isinstance(writer, Primitive):
        return _compare_primitives(reader, writer, location)
    return None


def _inner(comparison: Comparison) -> Steps:
    return (yield comparison)


def _done(found: Found) -> Steps:
    yield from ()
    return found


def _compare_primitives(reader: Primitive, writer: Primitive, location: Location) -> Found:
    if reader.kind == writer.kind or writer.kind in _PROMOTIONS.get(reader.kind, ()):
        return []
    return [_type_mismatch(reader, writer, location)]


def _compare_names(reader: Named, writer: Named, location: Location) -> Found:
    if reader.name.simple == writer.name.simple or writer.name.full in alias_texts(reader):
        return []
    return [_incompatible("NAME_MISMATCH", (location, "name"), f"expected: {writer.name.full}")]


def _compare_symbols(reader: Enum, writer: Enum, location: Location) -> Found:
    missing = set(writer.symbols).difference(reader.symbols)
    if not missing or reader.default is not None:
        return []
    # Java sorts by UTF-16.
    ordered = sorted(missing, key=lambda symbol: symbol.encode("utf-16-be"))
    return [_incompatible("MISSING_ENUM_SYMBOLS", (location, "symbols"), f"[{', '.join(ordered)}]")]


def _compare_sizes(reader: Fixed, writer: Fixed, location: Location) -> Found:
    if reader.size == writer.size:
        return []
    message = f"expected: {writer.size}, found: {reader.size}"
    return [_incompatible("FIXED_SIZE_MISMATCH", (location, "size"), message)]


def _writers_field(field: Field, writer: Record) -> Field | None:
    """The writer's field of the reader's field's name or of one of its aliases."""
    matches = [writer.by_name[name] for name in (field.name, *field.aliases) if name in writer.by_name]
    if len(matches) > 1:
        shown = f"{field.name} type:{field.type.kind.upper()}"
        raise NotComparable(
            f"Reader record field {shown} matches multiple fields in writer record schema {writer.name.full}"
        )
    return matches[0] if matches else None


def _type_mismatch(reader: Schema, writer: Schema, location: Location) -> Incompatibility:
    message = f"reader type: {reader.kind.upper()} not compatible with writer type: {writer.kind.upper()}"
    return _incompatible("TYPE_MISMATCH", location, message)


def _missing_branch(writer: Schema, location: Location) -> Incompatibility:
    message = f"reader union lacking writer type: {writer.kind.upper()}"
    return _incompatible("MISSING_UNION_BRANCH", location, message)


def _incompatible(error: str, location: Location, message: str) -> Incompatibility:
    steps: list[str] = []
    while location is not None:
        location, step = location
        steps.append(step)
    return Incompatibility(error, "/" + "/".join(reversed(steps)), message)
