"""The file connectors against a real broker: lines, positions, rotation, files that come late and shrink."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from connect_tasks import MemoryOffsets, Running, run_sink, run_source, stopped_at_end
from felice.pipelines.connect.connectors.file import (
    FileStreamSink,
    FileStreamSinkTask,
    FileStreamSource,
    FileStreamSourceTask,
)
from felice.pipelines.connect.model.errors import ConfigError, ConnectError
from felice.testing import Broker, felice_broker
from waiting import wait_until


@pytest.fixture
def broker() -> Iterator[Broker]:
    with felice_broker() as started:
        started.create_topic("lines", partitions=1)
        yield started


def reading(broker: Broker, path: Path, offsets: MemoryOffsets | None = None, **config: str) -> Running:
    given = {"file": str(path), "topic": "lines", **config}
    return run_source(broker, FileStreamSourceTask(), config=given, offsets=offsets)


def lines(broker: Broker) -> list[str]:
    return [(one.value or b"").decode() for one in broker.records("lines")]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_every_kind_of_line_end_and_an_unfinished_line(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes("één\r\ntwo\rthree\n\nunfin".encode())
    with stopped_at_end(reading(broker, path)):
        wait_until(lambda: len(lines(broker)) == 4)
        assert lines(broker) == ["één", "two", "three", ""]
        append(path, b"ished\n")
        wait_until(lambda: len(lines(broker)) == 5)
    assert lines(broker)[-1] == "unfinished"


@pytest.mark.parametrize("batch", ["1", "7", "2000"])
def test_a_restart_reads_on_at_the_next_byte(broker: Broker, tmp_path: Path, batch: str) -> None:
    path, offsets = tmp_path / "in.txt", MemoryOffsets()
    path.write_text("".join(f"ligne é {n}\n" for n in range(20)) + "half")
    with stopped_at_end(reading(broker, path, offsets, **{"batch.size": batch})) as running:
        wait_until(lambda: len(lines(broker)) == 20)
        running.stop()
    append(path, b"\nend\n")
    with stopped_at_end(reading(broker, path, offsets)):
        wait_until(lambda: len(lines(broker)) == 22)
    assert lines(broker) == [f"ligne é {n}" for n in range(20)] + ["half", "end"]
    position = offsets.read([{"filename": str(path)}])[0]
    assert position is not None and position["position"] == path.stat().st_size


def test_a_file_may_come_later(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "late.txt"
    with stopped_at_end(reading(broker, path)):
        path.write_text("here\n")
        wait_until(lambda: lines(broker) == ["here"])


def test_a_rotated_file_is_read_to_its_end_first(broker: Broker, tmp_path: Path) -> None:
    path, old = tmp_path / "log", tmp_path / "log.1"
    path.write_text("1\n")
    with stopped_at_end(reading(broker, path)):
        wait_until(lambda: lines(broker) == ["1"])
        append(path, b"2\n")
        path.rename(old)
        append(old, b"3\n")
        path.write_text("4\n5\n")
        wait_until(lambda: len(lines(broker)) == 5)
    assert lines(broker) == ["1", "2", "3", "4", "5"]


def test_a_file_that_was_rotated_while_no_task_ran_is_read_to_its_end(broker: Broker, tmp_path: Path) -> None:
    path, old, offsets = tmp_path / "log", tmp_path / "log.1", MemoryOffsets()
    path.write_text("1\n")
    with stopped_at_end(reading(broker, path, offsets)) as running:
        wait_until(lambda: lines(broker) == ["1"])
        running.stop()
    append(path, b"2\n")
    path.rename(old)
    path.write_text("3\n4\n")
    with stopped_at_end(reading(broker, path, offsets)):
        wait_until(lambda: len(lines(broker)) == 4)
    assert lines(broker) == ["1", "2", "3", "4"]


def test_a_file_whose_predecessor_is_gone_is_read_whole(broker: Broker, tmp_path: Path) -> None:
    path, offsets = tmp_path / "log", MemoryOffsets()
    path.write_text("1\n2\n")
    with stopped_at_end(reading(broker, path, offsets)) as running:
        wait_until(lambda: len(lines(broker)) == 2)
        running.stop()
    new = tmp_path / "new"
    new.write_text("3\n4\n5\n")
    new.replace(path)
    with stopped_at_end(reading(broker, path, offsets)):
        wait_until(lambda: len(lines(broker)) == 5)
    assert lines(broker) == ["1", "2", "3", "4", "5"]


def test_a_file_that_became_shorter_is_read_from_its_beginning(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log"
    path.write_text("first\nsecond\n")
    with stopped_at_end(reading(broker, path)):
        wait_until(lambda: len(lines(broker)) == 2)
        os.truncate(path, 0)
        append(path, b"new\n")
        wait_until(lambda: len(lines(broker)) == 3)
    assert lines(broker)[-1] == "new"
    assert "has 4 bytes, fewer than the 13 that were read" in caplog.text


def test_a_folder_is_not_a_file(broker: Broker, tmp_path: Path) -> None:
    error = reading(broker, tmp_path).wait()
    assert isinstance(error, ConnectError) and str(error).startswith(f"cannot read the file {tmp_path}: ")


def test_the_position_of_an_offset_must_be_a_number() -> None:
    config = {"file": "x", "topic": "t"}
    partition = '{"filename":"x"}'
    assert FileStreamSource.alter_offsets(config, {partition: {"position": 3}})
    assert FileStreamSource.alter_offsets(config, {partition: None})
    for bad in ({"position": -1}, {"position": "3"}, {}):
        with pytest.raises(ConnectError, match="'position'"):
            FileStreamSource.alter_offsets(config, {partition: bad})
    with pytest.raises(ConnectError, match="Offsets cannot be modified"):
        FileStreamSource.alter_offsets({"topic": "t"}, {})


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match='Missing required configuration "topic"'):
        FileStreamSource.definitions.parse({"file": "x"})
    names = {one.name: one.errors for one in FileStreamSource.validate({"topic": "", "batch.size": "many"})}
    assert names["topic"] and names["batch.size"] and not names["file"]


def test_a_sink_appends_a_line_for_each_record(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("before\n")
    for value in ("één", "two", ""):
        broker.produce("lines", value, partition=0)
    with stopped_at_end(
        run_sink(broker, FileStreamSinkTask(), "lines", config={"file": str(path)})
    ) as running:
        wait_until(lambda: path.read_text() == "before\néén\ntwo\n\n")
        running.stop()
    broker.produce("lines", "again", partition=0)
    with stopped_at_end(run_sink(broker, FileStreamSinkTask(), "lines", config={"file": str(path)})):
        wait_until(lambda: path.read_text().endswith("again\n"))
    assert path.read_text() == "before\néén\ntwo\n\nagain\n"


def test_a_sink_that_cannot_write_ends_the_task(broker: Broker, tmp_path: Path) -> None:
    broker.produce("lines", "x", partition=0)
    missing = tmp_path / "no" / "file"
    error = run_sink(broker, FileStreamSinkTask(), "lines", config={"file": str(missing)}).wait()
    assert isinstance(error, ConnectError) and f"Couldn't find or create file '{missing}'" in str(error)
    full = run_sink(broker, FileStreamSinkTask(), "lines", config={"file": "/dev/full"}, name="full").wait()
    assert isinstance(full, ConnectError) and "No space left on device" in str(full)


def test_a_sink_ends_a_line_that_a_crash_left_unfinished(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("whole\nhal")
    broker.produce("lines", "half", partition=0)
    with stopped_at_end(run_sink(broker, FileStreamSinkTask(), "lines", config={"file": str(path)})):
        wait_until(lambda: path.read_text().endswith("half\n"))
    assert path.read_text() == "whole\nhal\nhalf\n"


def test_tasks_of_files() -> None:
    source, sink = FileStreamSource(), FileStreamSink()
    source.start({"file": "x", "topic": "t"})
    sink.start({"file": "y"})
    assert source.task_configs(5) == [{"file": "x", "topic": "t"}]
    assert sink.task_configs(3) == [{"file": "y"}] * 3
    assert FileStreamSource.exactly_once_support({"file": "x"}) is True
    assert FileStreamSource.exactly_once_support({}) is False
