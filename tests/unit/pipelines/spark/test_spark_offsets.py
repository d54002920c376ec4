from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felice.pipelines.spark.offsets import (
    OffsetsError,
    from_checkpoint,
    parse_offsets,
    parse_partitions,
    to_checkpoint,
)

offsets = st.dictionaries(st.tuples(st.text(min_size=1), st.integers(0, 1000)), st.integers(-2, 2**62))


def test_offsets_are_written_as_sparks_kafka_source_writes_them() -> None:
    written = to_checkpoint({("b", 1): 7, ("a", 0): 5, ("b", 0): 6})
    assert json.dumps(written) == '{"a": {"0": 5}, "b": {"0": 6, "1": 7}}'


@given(offsets)
def test_what_is_written_is_read_back(given_offsets: dict[tuple[str, int], int]) -> None:
    assert parse_offsets(json.dumps(to_checkpoint(given_offsets))) == given_offsets


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "expected"),
        ('{"t": 5}', "topic 't'"),
        ('{"t": {"x": 5}}', "'x' is not a partition"),
        ('{"t": {"-1": 5}}', "'-1' is not a partition"),
        ('{"t": {"0": "5"}}', "'5' is not a whole number"),
        ('{"t": {"0": true}}', "True is not a whole number"),
    ],
)
def test_a_wrong_document_says_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(OffsetsError, match=said):
        parse_offsets(text)


def test_assigned_partitions_are_read_once_each_and_in_order() -> None:
    assert parse_partitions('{"b":[1,0,1],"a":[2]}') == (("a", 2), ("b", 0), ("b", 1))


@pytest.mark.parametrize("text", ["{}", "[]", '{"t":[]}', '{"t":0}', '{"t":["x"]}', '{"t":[true]}'])
def test_a_wrong_assignment_is_refused(text: str) -> None:
    with pytest.raises(OffsetsError):
        parse_partitions(text)


def test_a_checkpoint_that_is_no_object_is_refused() -> None:
    with pytest.raises(OffsetsError, match="got 5"):
        from_checkpoint(5)
