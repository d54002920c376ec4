"""Declared classes are plain records, and versions are ranges."""

import copy
import uuid

import pytest

from felice.protocol.messages.fetch import FetchRequest, FetchTopic
from felice.protocol.messages.metadata import MetadataRequest
from felice.protocol.primitives import ZERO_UUID
from felice.protocol.schema import (
    NO_VERSIONS,
    Versions,
    array,
    data,
    int32,
    nested,
    schema_of,
    string,
    struct,
)


def test_every_field_has_a_default_and_lists_are_not_shared() -> None:
    first, second = FetchRequest(), FetchRequest()
    first.topics.append(FetchTopic())
    assert second.topics == []
    assert (second.session_epoch, second.rack_id, second.cluster_id) == (-1, "", None)
    assert FetchTopic().topic_id == ZERO_UUID


def test_values_are_compared_and_shown() -> None:
    assert FetchTopic(topic="t") == FetchTopic(topic="t")
    assert FetchTopic(topic="t") != FetchTopic(topic="u")
    assert FetchTopic().__eq__(FetchRequest()) is NotImplemented
    assert repr(FetchTopic(topic="t", topic_id=uuid.UUID(int=1))) == (
        "FetchTopic(topic='t', topic_id=UUID('00000000-0000-0000-0000-000000000001'), partitions=[])"
    )
    with pytest.raises(TypeError, match="unhashable"):
        hash(FetchTopic())


def test_only_declared_fields_exist() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'topcs'"):
        FetchRequest(topcs=[])  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        FetchRequest().topcs = []  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="positional"):
        FetchTopic("t")  # type: ignore[call-arg]


def test_messages_can_be_copied() -> None:
    message = FetchRequest(topics=[FetchTopic(topic="t")])
    other = copy.deepcopy(message)
    assert other == message
    other.topics[0].topic = "u"
    assert message.topics[0].topic == "t"


def test_null_is_a_value_like_any_other() -> None:
    assert MetadataRequest(topics=None).topics is None
    assert MetadataRequest().topics == []


def test_struct_that_is_neither_tagged_nor_nullable_is_made_afresh() -> None:
    @struct
    class Inner:
        number: int = int32(default=3)

    @data(versions="0")
    class Outer:
        inner: Inner = nested(Inner)
        names: list[str] = array(string)

    first = Outer()
    first.inner.number = 4
    assert Outer().inner == Inner(number=3)
    assert schema_of(Outer).kind == "data"


def test_an_undeclared_class_has_no_schema() -> None:
    with pytest.raises(TypeError, match="int is not a declared message"):
        schema_of(int)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3", [3], [2, 4]), ("3-5", [3, 4, 5], [2, 6]), ("3+", [3, 900], [2]), ("none", [], [0, -1, 5])],
)
def test_version_ranges(text: str, inside: list[int], outside: list[int]) -> None:
    versions = Versions.parse(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)
    assert Versions.parse(str(versions)) == versions


def test_ranges_meet() -> None:
    assert Versions.parse("3+") & Versions.parse("0-5") == Versions(3, 5)
    assert Versions.parse("3+") & Versions.parse("0-2") == NO_VERSIONS
    assert list(Versions(3, 5)) == [3, 4, 5]
    assert list(NO_VERSIONS) == []
