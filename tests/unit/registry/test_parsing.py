"""The cache of parsed schemas."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from felice.registry import parsing
from felice.registry.errors import RegistryError
from felice.registry.parsing import Parser
from registry_world import ToySchema


def counting() -> tuple[Parser, list[str]]:
    parsed: list[str] = []

    def parse(text: str, references: Mapping[str, str]) -> ToySchema:
        parsed.append(text)
        return ToySchema("AVRO", text, references)

    return Parser({"AVRO": parse}), parsed


def test_a_text_is_parsed_once() -> None:
    parser, parsed = counting()
    assert parser.parse("AVRO", "a", ()) is parser.parse("AVRO", "a", ())
    parser.parse("AVRO", "a", (("r", "x"),))
    assert parsed == ["a", "a"], "references are part of the schema"


def test_the_cache_is_bounded_by_number_and_by_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "MAX_SCHEMAS", 2)
    monkeypatch.setattr(parsing, "MAX_CHARACTERS", 100)
    parser, parsed = counting()
    for text in ("a", "b", "a", "c", "a", "b"):
        parser.parse("AVRO", text, ())
    assert parsed == ["a", "b", "c", "b"], "the schema that was used last stays"
    parser.parse("AVRO", "d" * 99, ())
    parser.parse("AVRO", "d" * 99, ())
    parser.parse("AVRO", "b", ())
    parser.parse("AVRO", "a", ())
    assert parsed[4:] == ["d" * 99, "a"]
    parser.parse("AVRO", "e" * 101, ())
    parser.parse("AVRO", "e" * 101, ())
    assert len(parsed) == 8, "a text above the limit is not kept"


def test_a_missing_library_is_named() -> None:
    def parse(text: str, references: Mapping[str, str]) -> ToySchema:
        raise ModuleNotFoundError("No module named 'avro'", name="avro")

    with pytest.raises(RegistryError, match="schemas of the type AVRO need the module avro") as failed:
        Parser({"AVRO": parse}).parse("AVRO", "a", ())
    assert failed.value.status == 500
