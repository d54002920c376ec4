"""Decoding any bytes raises nothing but `MalformedMessage`, and takes memory only for received bytes."""

import random
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felice.protocol.codec import decode, decode_data, encode
from felice.protocol.connection import Request, ServerConnection
from felice.protocol.primitives import MalformedMessage
from felice.protocol.schema import schema_of
from properties.protocol.catalogue import (
    API_CLASSES,
    CLASSES,
    CLASSES_AND_VERSIONS,
    DATA_CLASSES,
    name_of,
    sample,
)

NUMBERS_TO_PLANT = [
    b"\xff" * 5,
    b"\xff\xff\xff\xff\x0f",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff",
]

ALLOCATED_PER_BYTE = 160
"""The densest message is an array of two-byte structs, each an object of some slots and a place in a list."""


def attempt(cls: type[Any], data: bytes, version: int) -> None:
    try:
        decode(cls, data, version)
    except MalformedMessage as error:
        assert 0 <= error.position <= len(data)
        assert error.field
        assert cls.__name__ in error.message


def mutations(data: bytes, source: random.Random, count: int) -> list[bytes]:
    mutated = []
    for _ in range(count):
        copy = bytearray(data)
        at = source.randrange(len(copy) + 1)
        match source.randrange(4):
            case 0:
                copy[at : at + 1] = source.randbytes(1)
            case 1:
                planted = source.choice(NUMBERS_TO_PLANT)
                copy[at : at + len(planted)] = planted
            case 2:
                del copy[at : at + source.randrange(8)]
            case _:
                copy[at:at] = source.randbytes(source.randrange(8))
        mutated.append(bytes(copy))
    return mutated


@pytest.mark.parametrize(("cls", "version"), CLASSES_AND_VERSIONS, ids=name_of)
def test_every_truncation_is_malformed(cls: type[Any], version: int) -> None:
    data = encode(sample(cls, version, width=1), version)
    for size in range(len(data)):
        with pytest.raises(MalformedMessage):
            decode(cls, data[:size], version)


@pytest.mark.parametrize(("cls", "version"), CLASSES_AND_VERSIONS, ids=name_of)
def test_bytes_left_over_are_malformed(cls: type[Any], version: int) -> None:
    with pytest.raises(MalformedMessage, match="1 bytes left over"):
        decode(cls, encode(sample(cls, version), version) + b"\0", version)


@pytest.mark.parametrize(("cls", "version"), CLASSES_AND_VERSIONS, ids=name_of)
def test_mutated_messages_are_read_or_malformed(cls: type[Any], version: int) -> None:
    source = random.Random(f"{cls.__name__} {version}")
    data = encode(sample(cls, version), version)
    for mutated in mutations(data, source, 60):
        attempt(cls, mutated, version)


@pytest.mark.parametrize("cls", CLASSES, ids=name_of)
@settings(max_examples=40, deadline=None)
@given(data=st.binary(max_size=200), choice=st.integers(0))
def test_any_bytes_are_read_or_malformed(cls: type[Any], data: bytes, choice: int) -> None:
    versions = list(schema_of(cls).versions)
    attempt(cls, data, versions[choice % len(versions)])


@pytest.mark.parametrize("cls", DATA_CLASSES, ids=name_of)
@settings(max_examples=40, deadline=None)
@given(data=st.binary(max_size=100))
def test_any_data_with_a_version_is_read_or_malformed(cls: type[Any], data: bytes) -> None:
    for lead in (b"", b"\0\0", b"\0\1", b"\0\3"):
        try:
            decode_data(cls, lead + data)
        except MalformedMessage as error:
            assert error.field


@pytest.mark.parametrize("cls", API_CLASSES, ids=name_of)
def test_memory_grows_with_received_bytes_not_with_announced_sizes(cls: type[Any]) -> None:
    source = random.Random(cls.__name__)
    for version in {schema_of(cls).versions.min, schema_of(cls).versions.max}:
        data = encode(sample(cls, version), version)
        step = max(7, len(data) // 60)
        lies = mutations(data, source, 20) + [data[:at] + b"\x7f" * 40 for at in range(0, len(data), step)]
        attempt(cls, data, version)
        for lie in lies:
            bound = 32 * 1024 + ALLOCATED_PER_BYTE * len(lie)
            # Another thread of this process may allocate meanwhile; it does not do so every time.
            assert any(peak_of(cls, lie, version) < bound for _ in range(3)), (version, lie)


def peak_of(cls: type[Any], data: bytes, version: int) -> int:
    """The most memory in bytes that an attempt to read took."""
    tracemalloc.start()
    try:
        attempt(cls, data, version)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def received(data: bytes) -> tuple[Request | None, Exception | None]:
    """The first request, and the reason why no other follows."""
    connection = ServerConnection(1000)
    connection.get_buffer()[: len(data)] = data
    connection.received(len(data))
    first = connection.next_request()
    while connection.next_request() is not None:
        pass
    return first, connection.failure


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=300), key=st.integers(-1, 80), version=st.integers(-1, 20))
def test_a_connection_survives_any_frame(data: bytes, key: int, version: int) -> None:
    body = struct.pack(">hhih", key, version, 7, -1) + data
    request, failure = received(struct.pack(">i", len(body)) + body)
    assert (request is None) == (failure is not None)


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=300))
def test_a_connection_survives_any_bytes(data: bytes) -> None:
    received(data)
