"""Protobuf schemas made at random: their texts and their compatibility."""

from __future__ import annotations

import base64
import re
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from felice.registry.formats.protobuf import ProtobufSchema, parse
from felice.registry.formats.schema import InvalidSchema
from properties.registry.formats.protobuf_descriptors import IMPORTED, RandomFile, comparable, damage


def encoded(file: bytes) -> str:
    return base64.b64encode(file).decode()


def descriptor(schema: ProtobufSchema) -> bytes:
    return base64.b64decode(schema.formatted("serialized"))


@settings(max_examples=100)
@given(st.randoms(use_true_random=False))
def test_the_text_of_a_descriptor_compiles_to_the_same_descriptor(random: Random) -> None:
    file = RandomFile(random).file
    schema = parse(encoded(file.SerializeToString()), IMPORTED)
    assert comparable(descriptor(schema)) == comparable(file.SerializeToString()), schema.canonical


@settings(max_examples=30)
@given(st.randoms(use_true_random=False))
def test_the_canonical_text_is_its_own_canonical_text(random: Random) -> None:
    schema = parse(encoded(RandomFile(random).file.SerializeToString()), IMPORTED)
    again = parse(schema.canonical, IMPORTED)
    assert again.canonical == schema.canonical
    normalized = schema.normalized()
    assert parse(normalized, IMPORTED).normalized() == normalized
    assert schema.incompatibilities(again) == []
    assert schema.incompatibilities(parse(normalized, IMPORTED)) == []


def stable(text: str) -> None:
    """The text is a schema whose canonical text is its own, or it is refused."""
    try:
        schema = parse(text, IMPORTED)
    except InvalidSchema as error:
        assert "\n" not in str(error)
    else:
        assert parse(schema.canonical, IMPORTED).canonical == schema.canonical


@settings(max_examples=100)
@given(st.randoms(use_true_random=False))
def test_descriptors_with_changed_values_are_schemas_or_refused(random: Random) -> None:
    file = RandomFile(random).file
    for _ in range(random.randrange(1, 4)):
        damage(file, random)
    stable(encoded(file.SerializeToString()))


@settings(max_examples=100)
@given(st.randoms(use_true_random=False))
def test_damaged_descriptors_are_schemas_or_refused(random: Random) -> None:
    body = bytearray(RandomFile(random).file.SerializeToString())
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(body))
        body[at : at + random.randrange(3)] = random.randbytes(random.randrange(3))
    stable(encoded(bytes(body)))


@settings(max_examples=50)
@given(st.randoms(use_true_random=False))
def test_damaged_texts_are_schemas_or_refused(random: Random) -> None:
    parts = re.split(r"(\W)", parse(encoded(RandomFile(random).file.SerializeToString()), IMPORTED).canonical)
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(parts))
        parts[at : at + random.randrange(3)] = [random.choice(parts) for _ in range(random.randrange(3))]
    stable("".join(parts))
