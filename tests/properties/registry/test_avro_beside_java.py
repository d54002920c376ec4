"""Random pairs of Avro schemas: texts, validity and comparisons beside those of Avro's Java library."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from felice.registry.formats.avro import AvroSchema, parse
from felice.registry.formats.avro.reading import Incompatibility, incompatibilities
from felice.registry.formats.pairs import NotComparable
from felice.registry.formats.schema import InvalidSchema
from peers.avro_java import AvroOracle, running_avro_oracle
from properties.registry.avro_schemas import Schemas

PAIRS = 3_000


@pytest.fixture(scope="module")
def oracle() -> Iterator[AvroOracle]:
    with running_avro_oracle() as running:
        yield running


def test_random_pairs_have_the_verdicts_and_texts_of_java(oracle: AvroOracle) -> None:
    compatible = incompatible = invalid = 0
    first = random.randrange(2**31)
    for seed in range(first, first + PAIRS):
        reader, writer = _pair(seed)
        expected = oracle.ask(reader, writer)
        found = _answer(reader, writer)
        if "exception" in expected:
            # Java looks for ambiguous fields also in the branches of a union that have another name.
            expected["incompatibilities"] = found["incompatibilities"]
        assert found == _comparable(expected), f"seed {seed}:\n{reader}\n{writer}\n{expected}"
        invalid += "incompatibilities" not in found
        compatible += found.get("incompatibilities") == []
        incompatible += bool(found.get("incompatibilities"))
    # A generator of nonsense would agree, too.
    assert min(compatible, incompatible, invalid) > PAIRS // 20


def test_the_first_branch_that_reads_a_type_decides(oracle: AvroOracle) -> None:
    # The field `i` is ambiguous. Where B comes first, it reads A by its alias, and nothing looks into A.
    fields = '[{"name":"i","type":"int","aliases":["f"]},{"name":"f","type":"int"}]'
    ambiguous = f'{{"type":"record","name":"A","fields":{fields}}}'
    by_alias = '{"type":"record","name":"B","aliases":["A"],"fields":[]}'
    for reader, is_ambiguous in (
        (f"[{by_alias},{ambiguous}]", False),
        (f"[{ambiguous},{by_alias}]", True),
    ):
        assert ("exception" in oracle.ask(reader, ambiguous)) == is_ambiguous
        assert _answer(reader, ambiguous)["incompatibilities"] == ("exception" if is_ambiguous else [])


def test_references_are_named_and_resolved_as_in_java(oracle: AvroOracle) -> None:
    references = [
        '{"type":"enum","name":"x.E","symbols":["A","B"]}',
        '{"type":"record","name":"x.Outer","fields":[{"name":"e","type":"E"},'
        '{"name":"inner","type":{"type":"record","name":"Inner","fields":[]}}]}',
        '["null","x.Outer"]',
    ]
    reader = (
        '{"type":"record","name":"x.R","fields":[{"name":"o","type":["null","Outer"],"default":null},'
        '{"name":"i","type":"Inner"},{"name":"e","type":"x.E","default":"A"}]}'
    )
    writer = '{"type":"record","name":"y.R","fields":[{"name":"i","type":"x.Inner"}]}'
    expected = oracle.ask(reader, writer, references)
    named = {str(number): text for number, text in enumerate(references)}
    for role, text in (("reader", reader), ("writer", writer)):
        schema = parse(text, named)
        assert schema.canonical == expected[role]
        assert schema.formatted("resolved") == expected[f"{role}Resolved"]


def _pair(seed: int) -> tuple[str, str]:
    schemas = Schemas(seed)
    chance = schemas.random.random
    writer = schemas.schema()
    reader = schemas.changed(writer, schemas.random.randint(0, 3)) if chance() < 0.9 else schemas.schema()
    ascii_only = chance() < 0.5
    return json.dumps(reader, ensure_ascii=ascii_only), json.dumps(writer, ensure_ascii=ascii_only)


def _answer(reader: str, writer: str) -> dict[str, Any]:
    """As the oracle's."""
    answer: dict[str, Any] = {}
    schemas: list[AvroSchema] = []
    for role, text in (("reader", reader), ("writer", writer)):
        try:
            schema = parse(text, {})
        except InvalidSchema:
            answer[role] = None
        else:
            schemas.append(schema)
            answer[role] = schema.canonical
    if len(schemas) == 2:
        answer["incompatibilities"] = _reasons(schemas[0], schemas[1])
    return answer


def _reasons(reader: AvroSchema, writer: AvroSchema) -> list[list[str]] | str:
    def as_list(reason: Incompatibility) -> list[str]:
        return [reason.error, reason.location, reason.message]

    try:
        return [as_list(reason) for reason in incompatibilities(reader._schema, writer._schema)]
    except NotComparable:
        return "exception"


def _comparable(answer: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {role: answer.get(role) for role in ("reader", "writer")}
    if "incompatibilities" in answer:
        found["incompatibilities"] = answer["incompatibilities"]
    return found
