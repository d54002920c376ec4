"""Runs of records: as records, from messages and lines, and the same as what is made one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felice.client.model import Message, by_partition
from felice.pipelines.connect.connectors.lines import Lines, texts_of
from felice.pipelines.connect.converters.converter import Converter
from felice.pipelines.connect.converters.headers import SimpleHeaderConverter
from felice.pipelines.connect.converters.json import JsonConverter
from felice.pipelines.connect.converters.plain import ByteArrayConverter, StringConverter
from felice.pipelines.connect.model.record import SourceRecord
from felice.pipelines.connect.model.runs import SourceRun, values_of
from felice.pipelines.connect.model.schema import STRING, Schema
from felice.pipelines.connect.task.control import Control
from felice.pipelines.connect.task.conversion import Conversion, Step
from felice.pipelines.connect.task.tolerance import ErrorPolicy, Tolerance
from felice.pipelines.connect.transforms.routing import Filter


def conversion(kind: type[Converter], *steps: Step, **options: object) -> Conversion:
    config = {one.name: one.default for one in kind.definitions} | options
    values = kind(config, is_key=False)
    keys = StringConverter({"converter.encoding": "UTF-8"}, is_key=True)
    return Conversion(keys, values, SimpleHeaderConverter(), steps, Tolerance(ErrorPolicy(), [], Control()))


def messages(*values: bytes | None, **more: object) -> list[Message]:
    return [
        Message("t", 3, offset, f"k{offset}".encode(), value, timestamp=(offset % 3, 1000 + offset), **more)  # type: ignore[arg-type]
        for offset, value in enumerate(values)
    ]


@pytest.mark.parametrize("kind", [StringConverter, ByteArrayConverter, JsonConverter])
def test_a_run_has_the_records_that_are_made_one_by_one(kind: type[Converter]) -> None:
    made = conversion(kind, **({"schemas.enable": False} if kind is JsonConverter else {}))
    given_messages = messages(b'"one"', None, b'"\xc3\xa4"', b"[1, 2]")
    run = made.of_messages("t", 3, given_messages)
    assert run is not None
    alone = [made.of_message(message) for message in given_messages]
    assert list(run) == alone and len(run) == 4
    assert [one.original for one in run] == given_messages
    assert values_of(run) == values_of(list(run)) == [one.value for one in alone if one is not None]


def test_a_record_of_a_run_is_one_object() -> None:
    run = conversion(StringConverter).of_messages("t", 3, messages(b"a", b"b", b"c"))
    assert run is not None
    assert run[1] is run[1] is list(run)[1] is run[-2]
    assert [one.value for one in run[1:]] == ["b", "c"]
    with pytest.raises(IndexError):
        run[3]


@pytest.mark.parametrize(
    ("made", "given_messages"),
    [
        (conversion(StringConverter, Step(Filter({}))), messages(b"a")),
        (conversion(StringConverter), messages(b"a", headers=[("h", b"1")])),
        (conversion(JsonConverter), messages(b"{}", b"no JSON")),
    ],
    ids=["with a transformation", "with headers", "with one that cannot be read"],
)
def test_other_messages_are_no_run(made: Conversion, given_messages: Sequence[Message]) -> None:
    assert made.of_messages("t", 3, given_messages) is None


def test_a_source_run_is_a_sequence_of_records() -> None:
    text = Schema(STRING)
    asked = []

    def offset_after(index: int) -> dict[str, int]:
        asked.append(index)
        return {"position": 10 * index}

    run = SourceRun("t", text, ["a", "b", "c"], {"file": "f"}, offset_after)
    assert run.last == SourceRecord(
        "t", None, None, None, text, "c", source_partition={"file": "f"}, source_offset={"position": 20}
    )
    assert asked == [2], "only the place that was asked for is made"
    assert [one.value for one in run] == ["a", "b", "c"] and run[-1] == run.last
    assert [one.source_offset["position"] for one in run] == [0, 10, 20]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 2)), max_size=20))
def test_messages_are_cut_where_the_partition_changes(places: list[tuple[str, int, int]]) -> None:
    given_messages = [Message(topic, number, leader_epoch=epoch) for topic, number, epoch in places]
    runs = by_partition(given_messages)
    assert [message for _, run in runs for message in run] == given_messages
    assert all((message.topic(), message.partition()) == at for at, run in runs for message in run)
    assert all(first[0] != second[0] for first, second in pairwise(runs))


@given(
    st.lists(st.sampled_from([b"a", b"\xff", b"\xc3", b"\xa4", b"\n", b"\r", b"\r\n", b"\x0b"]), max_size=30),
    st.lists(st.integers(1, 3), min_size=1, max_size=30),
    st.integers(1, 4),
)
def test_lines_are_the_same_in_pieces_of_any_size(pieces: list[bytes], sizes: list[int], most: int) -> None:
    data = b"".join(pieces)
    lines, found, start = Lines(), [], 0
    for size in (*sizes, len(data)):
        lines.add(data[start : start + size], "f")
        start += size
        taken = lines.take(most)
        assert len(taken) <= most
        assert texts_of(taken) == [one.rstrip(b"\r\n").decode(errors="replace") for one in taken]
        found += taken
    found += lines.take(lines.count)
    whole = data.splitlines(keepends=True)
    if whole and not whole[-1].endswith(b"\n"):
        whole.pop()  # the beginning of the next line, or of its end
    assert found == whole and lines.count == 0
