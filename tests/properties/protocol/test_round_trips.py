"""Every message in every version is decoded as it was encoded."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felice.protocol.codec import (
    decode,
    decode_data,
    encode,
    encode_data,
    encode_parts,
    join_parts,
    parts_size,
)
from felice.protocol.schema import schema_of
from properties.protocol.catalogue import (
    CLASSES,
    CLASSES_AND_VERSIONS,
    DATA_CLASSES,
    messages,
    name_of,
    sample,
)


@pytest.mark.parametrize("cls", CLASSES, ids=name_of)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_decoding_what_was_encoded_gives_an_equal_message(cls: type[Any], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(list(schema_of(cls).versions)))
    message = data.draw(messages(cls, version))
    assert decode(cls, encode(message, version), version) == message


@pytest.mark.parametrize(("cls", "version"), CLASSES_AND_VERSIONS, ids=name_of)
def test_a_message_with_every_field_comes_back_equal(cls: type[Any], version: int) -> None:
    message = sample(cls, version)
    assert decode(cls, encode(message, version), version) == message


@pytest.mark.parametrize(("cls", "version"), CLASSES_AND_VERSIONS, ids=name_of)
def test_a_message_of_defaults_comes_back_equal(cls: type[Any], version: int) -> None:
    assert decode(cls, encode(cls(), version), version) == cls()


@pytest.mark.parametrize(("cls", "version"), CLASSES_AND_VERSIONS, ids=name_of)
def test_position_and_kind_of_buffer_do_not_matter(cls: type[Any], version: int) -> None:
    message = sample(cls, version, seed=1)
    shifted = b"\xff" * 7 + encode(message, version)
    for buffer in (shifted, bytearray(shifted), memoryview(shifted), memoryview(bytearray(shifted))):
        assert decode(cls, buffer, version, 7) == message


@pytest.mark.parametrize(("cls", "version"), CLASSES_AND_VERSIONS, ids=name_of)
def test_parts_joined_are_the_encoding(cls: type[Any], version: int) -> None:
    message = sample(cls, version, seed=2)
    parts = encode_parts(message, version)
    assert join_parts(parts) == encode(message, version)
    assert parts_size(parts) == len(encode(message, version))


@pytest.mark.parametrize("cls", DATA_CLASSES, ids=name_of)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_data_with_its_version_in_front_comes_back_equal(cls: type[Any], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(list(schema_of(cls).versions)))
    message = data.draw(messages(cls, version))
    assert decode_data(cls, encode_data(message, version)) == message
