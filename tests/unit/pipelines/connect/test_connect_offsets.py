"""Offsets of sources: which may be committed, their records, and the file of a standalone worker."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.record import SourceRecord
from felice.pipelines.connect.storage.offset_file import OffsetFile
from felice.pipelines.connect.storage.offset_records import (
    key_bytes,
    key_from_bytes,
    key_of,
    value_bytes,
    value_from_bytes,
)
from felice.pipelines.connect.task.source_offsets import Submitted

SIMPLE = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5)
PLACES = st.dictionaries(st.text(max_size=5), SIMPLE, max_size=3)


def record(partition: int, offset: int) -> SourceRecord:
    return SourceRecord(
        "t", None, None, None, None, None, source_partition={"p": partition}, source_offset={"o": offset}
    )


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_an_offset_never_passes_a_record_that_is_on_its_way(
    partitions: list[int], order: random.Random
) -> None:
    submitted = Submitted()
    sent = [(one, n, submitted.submit(record(one, n))) for n, one in enumerate(partitions)]
    waiting = {(one, n) for one, n, _ in sent}
    committed: dict[int, int] = {}
    for one, n, place in order.sample(sent, len(sent)):
        submitted.acknowledged(place)
        waiting.discard((one, n))
        for partition, offset in submitted.take().values():
            committed[partition["p"]] = offset["o"]
        for partition, offset in committed.items():
            assert all(number > offset for other, number in waiting if other == partition)
    assert committed == {one: n for one, n, _ in sent}
    assert submitted.count == 0


@given(st.text(min_size=1, max_size=9), PLACES, PLACES)
def test_records_of_offsets_are_read_as_they_were_written(name: str, partition: dict, offset: dict) -> None:  # type: ignore[type-arg]
    key = key_of(name, partition)
    assert key_from_bytes(key_bytes(key)) == key
    assert value_from_bytes(value_bytes(offset)) == offset


def test_records_of_offsets_are_those_of_kafka() -> None:
    assert key_bytes(key_of("file", {"filename": "/é"})) == '["file",{"filename":"/é"}]'.encode()
    assert value_bytes({"position": 12}) == b'{"position":12}'
    assert key_from_bytes(b'["c",{"b":1,"a":2}]') == key_of("c", {"a": 2, "b": 1})


@pytest.mark.parametrize("data", [b"", b"{}", b'["c"]', b'[1,{"a":1}]', b'["c",[]]', b"\xff", b"[" * 100_000])
def test_keys_of_others_are_refused(data: bytes) -> None:
    with pytest.raises(ConnectError, match=r"not \[connector, partition\]"):
        key_from_bytes(data)


def test_the_file_keeps_offsets_of_several_connectors(tmp_path: Path) -> None:
    path = tmp_path / "offsets"
    one, two = (OffsetFile(path).of(name) for name in ("one", "two"))
    file = OffsetFile(path)
    file.of("one").write([({"a": "x\ty\n"}, {"n": 1}), ({"a": 2}, {"n": 2})])
    file.of("two").write([({"a": 2}, {"n": 3})])
    file.of("one").write([({"a": 2}, None)])
    del one, two
    again = OffsetFile(path)
    assert again.of("one").read([{"a": "x\ty\n"}, {"a": 2}]) == [{"n": 1}, None]
    assert again.of("two").read([{"a": 2}]) == [{"n": 3}]
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_not_ours_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "offsets"
    path.write_bytes(b"\xac\xed\x00\x05sr\x00\x11java.util.HashMap")
    with pytest.raises(ConnectError, match="is not an offsets file of Felice"):
        OffsetFile(path)
    assert path.read_bytes().startswith(b"\xac\xed")
    path.write_bytes(b"felice connect offsets 1\nbroken\n")
    with pytest.raises(ConnectError, match="damaged"):
        OffsetFile(path)


def test_a_file_that_cannot_be_written_keeps_the_old_offsets(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "offsets"
    path.parent.mkdir()
    file = OffsetFile(path)
    file.of("c").write([({"a": 1}, {"n": 1})])
    path.with_name("offsets.new").mkdir()
    with pytest.raises(ConnectError, match="cannot write the offsets file"):
        file.of("c").write([({"a": 1}, {"n": 2})])
    assert file.of("c").read([{"a": 1}]) == [{"n": 1}]
    assert OffsetFile(path).of("c").read([{"a": 1}]) == [{"n": 1}]
