"""The compiled codec gives what the plain codec gives, or leaves a message to it, but no ordinary message."""

import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felice.protocol import connection, kernels
from felice.protocol.codec import ANY_NUMBER, decode_plain, encode_plain, join_parts, parts_size
from felice.protocol.connection import FrameReader
from felice.protocol.frames import plain_request_header
from felice.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from felice.protocol.primitives import MalformedMessage, UnencodableMessage
from felice.protocol.schema import schema_of
from properties.protocol.catalogue import CLASSES, CLASSES_AND_VERSIONS, messages, name_of, sample
from properties.protocol.test_hostile_bytes import mutations

pytestmark = pytest.mark.skipif(kernels.IMPLEMENTATION != "compiled", reason="needs the compiled codec")

WRONG_VALUES = [
    None,
    True,
    -1,
    2**15,
    2**31,
    2**63,
    1.5,
    "x",
    "\ud800",
    "x" * 40_000,
    b"y",
    [],
    [None],
    [3],
    (1,),
]


def table_of(cls: type[Any], version: int) -> kernels.Table:
    found = kernels.table(cls, version)
    assert found is not None
    return found


def shape(value: object) -> object:
    """The types in a value: `True` equals 1, and a memoryview equals bytes."""
    if isinstance(value, list):
        return [shape(item) for item in value]
    if isinstance(value, memoryview):
        return memoryview, value.readonly
    names = getattr(value, "__slots__", ())
    if not hasattr(value, "__schema__"):
        return type(value)
    return type(value), [shape(getattr(value, name)) for name in names]


def compare_reads(cls: type[Any], version: int, data: Any, limit: int = ANY_NUMBER) -> bool:
    """Returns whether the compiled codec has read the message."""
    read = table_of(cls, version).read(data, 0, limit)
    try:
        expected = decode_plain(cls, data, version, 0, limit)
    except MalformedMessage:
        assert read is None
        return False
    if read is None:
        return False
    # The text, too: a NaN equals nothing.
    assert read == expected or repr(read) == repr(expected)
    assert shape(read[0]) == shape(expected[0])
    return True


def compare_writes(message: Any, version: int) -> bool:
    """Returns whether the compiled codec has written the message."""
    written = table_of(type(message), version).write(message, b"head")
    try:
        expected = encode_plain(message, version, b"head")
    except UnencodableMessage:
        assert written is None
        return False
    if written is None:
        return False
    assert written == expected
    assert [type(part) for part in written] == [type(part) for part in expected]
    return True


def compare_frames(message: Any, version: int) -> None:
    written = table_of(type(message), version).write(message, b"sizehead", True)
    expected = encode_plain(message, version, b"sizehead")
    if written is not None:
        size = parts_size(expected) - 4
        assert parts_size(written) - 4 == size == int.from_bytes(join_parts(written)[:4], "big")
        assert join_parts(written)[4:] == join_parts(expected)[4:]


def has_tags(message: Any, version: int) -> bool:
    """Whether a tagged field is on the wire. The compiled codec does not write them."""
    for field in schema_of(type(message)).fields:
        value = getattr(message, field.name)
        # An empty list is the default, unless the default is null.
        is_default = value == field.default or (value == [] and field.default is not None)
        if version in field.versions and field.tag is not None and not is_default:
            return True
        if any(has_tags(inner, version) for inner in structs_in(value)):
            return True
    return False


def structs_in(value: Any) -> Iterator[Any]:
    for item in value if isinstance(value, list) else [value]:
        if hasattr(item, "__schema__"):
            yield item


def all_structs_in(message: Any) -> Iterator[Any]:
    for field in schema_of(type(message)).fields:
        for found in structs_in(getattr(message, field.name)):
            yield found
            yield from all_structs_in(found)


@pytest.mark.parametrize(("cls", "version"), CLASSES_AND_VERSIONS, ids=name_of)
def test_an_ordinary_message_is_read_and_written_by_the_compiled_codec(cls: type[Any], version: int) -> None:
    message = sample(cls, version)
    data = join_parts(encode_plain(message, version))
    assert compare_reads(cls, version, data)
    assert compare_writes(message, version) or has_tags(message, version)
    compare_frames(message, version)
    for buffer in (bytearray(data), memoryview(data), memoryview(bytearray(data))):
        assert compare_reads(cls, version, buffer)


@pytest.mark.parametrize("cls", CLASSES, ids=name_of)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_both_codecs_agree_on_any_message(cls: type[Any], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(list(schema_of(cls).versions)))
    message = data.draw(messages(cls, version))
    assert compare_writes(message, version) or has_tags(message, version)
    assert compare_reads(cls, version, join_parts(encode_plain(message, version)))


@pytest.mark.parametrize(("cls", "version"), CLASSES_AND_VERSIONS, ids=name_of)
def test_both_codecs_agree_on_changed_bytes(cls: type[Any], version: int) -> None:
    data = join_parts(encode_plain(sample(cls, version, width=1), version))
    for changed in mutations(data, random.Random(f"twins {cls.__name__} {version}"), 60):
        compare_reads(cls, version, changed)
    for size in range(len(data)):
        compare_reads(cls, version, data[:size])


@pytest.mark.parametrize(("cls", "version"), CLASSES_AND_VERSIONS, ids=name_of)
def test_both_codecs_agree_on_the_limit_of_elements(cls: type[Any], version: int) -> None:
    data = join_parts(encode_plain(sample(cls, version), version))
    for limit in range(12):
        compare_reads(cls, version, data, limit)


@pytest.mark.parametrize(("cls", "version"), CLASSES_AND_VERSIONS, ids=name_of)
def test_both_codecs_agree_on_wrong_values(cls: type[Any], version: int) -> None:
    for field in schema_of(cls).fields:
        for wrong in WRONG_VALUES:
            message = sample(cls, version)
            setattr(message, field.name, wrong)
            compare_writes(message, version)
    compare_writes(cls.__new__(cls), version)  # without values


@pytest.mark.parametrize(("cls", "version"), CLASSES_AND_VERSIONS, ids=name_of)
def test_both_codecs_agree_on_wrong_values_in_structs(cls: type[Any], version: int) -> None:
    source = random.Random(f"structs {cls.__name__} {version}")
    for _ in range(20):
        message = sample(cls, version)
        changed = source.choice([message, *all_structs_in(message)])
        names = [field.name for field in schema_of(type(changed)).fields]
        if names and source.random() < 0.1:
            delattr(changed, source.choice(names))
        elif names:
            setattr(
                changed, source.choice(names), source.choice([*WRONG_VALUES, b"", 0, 2**16, "é" * 16_384])
            )
        compare_writes(message, version)


class InFile:
    """Records that are in a file."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes

    def read(self) -> bytes:
        return bytes(self.size_bytes)


@pytest.mark.parametrize(
    "records", [b"", b"x" * 1024, b"x" * 1025, bytearray(3000), memoryview(b"x" * 3000), InFile(0), InFile(5)]
)
def test_both_codecs_make_the_same_parts_of_records(records: Any) -> None:
    rows = [PartitionData(partition_index=index, records=records) for index in range(2)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="topic", partitions=rows)])
    assert compare_writes(response, 11)
    compare_frames(response, 11)


def test_a_type_of_another_module_is_no_table() -> None:
    class Impostor:
        __schema__ = schema_of(PartitionData)

    with pytest.raises(KeyError):
        kernels.table(Impostor, 11)


@given(data=st.binary(max_size=30), client_id=st.none() | st.text(max_size=9), cut=st.integers(0, 40))
def test_both_read_the_same_header(data: bytes, client_id: str | None, cut: int) -> None:
    raw = (client_id or "").encode()
    length = -1 if client_id is None else len(raw)
    for frame in (data, (struct.pack(">hhih", 3, 4, 5, length) + raw + data)[:cut]):
        found = kernels.request_header(frame)
        try:
            assert found == plain_request_header(frame)
        except MalformedMessage:
            assert found is None


@given(
    sizes=st.lists(st.integers(0, 90), max_size=6),
    wrong=st.integers(-(2**31), 2**31 - 1),
    cut=st.integers(0, 9),
)
def test_both_cut_the_same_frames(sizes: list[int], wrong: int, cut: int) -> None:
    data = b"".join(struct.pack(">i", size) + bytes(range(size)) for size in sizes) + struct.pack(">i", wrong)
    data = data[: len(data) - cut]
    compiled, plain = FrameReader(80), FrameReader(80)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "whole_frames", lambda memory, end, max_bytes: ([], 0))
        expected = plain.feed(data)
    assert compiled.feed(data) == expected
    assert str(compiled.failure) == str(plain.failure)
    assert compiled.incomplete_bytes == plain.incomplete_bytes
    assert all(type(frame) is memoryview and not frame.readonly for frame in expected)
