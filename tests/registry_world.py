"""A registry without a broker, HTTP and real formats: the journal is a list, and a schema is a set of words.

A schema of the format TOY is a text of words, `id name?`. A reader reads a writer's data if it has no word without `?`
that the writer does not have. `uses other` makes a word the name of a reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from felice.registry.formats.schema import InvalidSchema, ParsedSchema, Reference, Roles
from felice.registry.operations import registration
from felice.registry.parsing import Parser
from felice.registry.records import Record, SchemaKey, SchemaValue, decode
from felice.registry.requests import SchemaRequest
from felice.registry.state import State

NEW_READS_OLD = Roles("new", "old")


class ToySchema:
    """Words, of which those with `?` may be missing."""

    def __init__(self, schema_type: str, text: str, references: Mapping[str, str]) -> None:
        words = text.split()
        if "bad" in words:
            raise InvalidSchema("it has the word bad")
        for before, word in pairwise(words):
            if before == "uses" and word not in references:
                raise InvalidSchema(f"nothing defines {word}")
        self.schema_type = schema_type
        self.words = words
        self.references = references

    @property
    def canonical(self) -> str:
        return " ".join(self.words)

    def normalized(self) -> str:
        return " ".join(sorted(self.words))

    def formatted(self, form: str) -> str:
        return (
            " | ".join((self.canonical, *self.references.values())) if form == "resolved" else self.canonical
        )

    def incompatibilities(self, writer: ParsedSchema, roles: Roles = NEW_READS_OLD) -> list[str]:
        assert isinstance(writer, ToySchema)
        if writer.schema_type != self.schema_type:
            return ["Incompatible because of different schema type"]
        known = {word.rstrip("?") for word in writer.words}
        missing = [word for word in self.words if not word.endswith("?") and word not in known]
        return [f"{{errorType:'MISSING', description:'{roles.writer} has no {word}'}}" for word in missing]


def toy(schema_type: str) -> Any:
    return lambda text, references: ToySchema(schema_type, text, references)


def toy_parser() -> Parser:
    return Parser({name: toy(name) for name in ("AVRO", "JSON", "PROTOBUF")})


class World:
    """A state with a journal of its own, to which each write is applied as it would be read from the topic."""

    def __init__(self) -> None:
        self.state = State()
        self.parser = toy_parser()
        self.journal: list[tuple[bytes, bytes | None]] = []

    def write(self, records: Iterable[Record]) -> None:
        for key, value in self.state.encode(records):
            self.read(key, value)

    def read(self, key: bytes, value: bytes | None) -> str | None:
        self.journal.append((key, value))
        return self.state.apply(decode(key, value), key, 1_000 + len(self.journal))

    def register(self, subject: str, text: str, *, normalize: bool = False, **arguments: Any) -> SchemaValue:
        """Registers as the service does, without its look-up beforehand."""
        references = tuple(Reference(*given) for given in arguments.pop("references", ()))
        request = SchemaRequest(text, references=references, **arguments)
        registration.check_mode(self.state, subject, request)
        drafted = registration.draft(self.state, subject, request, normalize=normalize)
        canonical = registration.canonical(self.parser, drafted)
        reasons = registration.reasons(self.parser, drafted, canonical)
        written, value = registration.registration(self.state, drafted, canonical, reasons)
        self.write(written)
        return value

    def look_up(self, subject: str, text: str, *, deleted: bool = False, **arguments: Any) -> tuple[int, int]:
        """The version and id of a schema."""
        references = tuple(Reference(*given) for given in arguments.pop("references", ()))
        request = SchemaRequest(text, references=references, **arguments)
        drafted = registration.draft(self.state, subject, request, for_lookup=True)
        canonical = registration.canonical(self.parser, drafted)
        found = registration.look_up(self.state, drafted, canonical, deleted=deleted)
        return found.number, found.id

    def replayed(self, journal: Iterable[tuple[bytes, bytes | None]] | None = None) -> State:
        """A state that was read from the journal, or from another one."""
        state = State()
        for key, value in self.journal if journal is None else journal:
            state.apply(decode(key, value), key, 0)
        return state

    def compacted(self) -> list[tuple[bytes, bytes | None]]:
        """The journal after compaction: the last record of each key, without tombstones."""
        last = {key: at for at, (key, _) in enumerate(self.journal)}
        return [self.journal[at] for at in sorted(last.values()) if self.journal[at][1] is not None]


def picture(state: State) -> dict[str, Any]:
    """What a state says, to compare two of them."""
    names = list(state.names(":*:"))
    return {
        "versions": {
            name: [
                (found.number, found.id, found.content, found.deleted)
                for found in state.subject(name).versions  # type: ignore[union-attr]
            ]
            for name in names
        },
        "configs": {name: state.config(name) for name in (None, *names)},
        "modes": {name: state.mode(name) for name in (None, *names)},
        "contexts": state.context_names(),
        "uses": {
            name: {i: sorted(state.context(name).uses(i)) for i in state.context(name).ids}
            for name in state.context_names()
        },
        "references": {
            (name, found.number): state.referring_ids(name, found.number)
            for name in names
            for found in state.subject(name).versions  # type: ignore[union-attr]
        },
    }


def schema_record(subject: str, version: int, schema_id: int, text: str, **arguments: Any) -> Record:
    from felice.registry.content import Content

    deleted = arguments.pop("deleted", False)
    value = SchemaValue(subject, version, schema_id, Content("AVRO", text, **arguments), deleted)
    return SchemaKey(subject, version), value
