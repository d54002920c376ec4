"""What Spark is told of a person's mistake is short, and says what to do."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from felice.client.error import KafkaError, failure
from felice.pipelines.spark.mistakes import OptionError, QueryError, plain_errors, plain_errors_while_read
from felice.pipelines.spark.source import FeliceDataSource


@pytest.fixture
def nowhere() -> Iterator[str]:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{nobody.getsockname()[1]}"


def told(function: Callable[[], Any]) -> tuple[str, list[str]]:
    """The last line of what Python would print, and the functions of its frames, ours and the caller's."""
    with pytest.raises(QueryError) as caught:
        function()
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    printed = "".join(traceback.format_exception(caught.value))
    assert "During handling" not in printed and "direct cause" not in printed
    return printed.splitlines()[-1], frames[frames.index("told") + 1 :]


def source(address: str, **options: str) -> FeliceDataSource:
    return FeliceDataSource({"kafka.bootstrap.servers": address, "fetchOffset.numRetries": "0", **options})


def test_a_wrong_option(nowhere: str) -> None:
    line, frames = told(source(nowhere, subscribe="a", startingOfsets="latest").schema)
    assert line.endswith("OptionError: option 'startingofsets': unknown; did you mean startingOffsets?")
    assert frames == ["call"]


@pytest.mark.parametrize("ask", ["batch", "stream"])
def test_nobody_at_the_address(nowhere: str, ask: str) -> None:
    found = source(nowhere, subscribe="a")
    schema = found.schema()
    asked = found.reader(schema).partitions if ask == "batch" else found.streamReader(schema).initialOffset
    line, frames = told(asked)
    assert f"ClusterError: no broker answers: {nowhere}: " in line
    assert "Local:" not in line and "KafkaError" not in line
    assert line.endswith("does the option 'kafka.bootstrap.servers' name it?")
    assert frames == ["call"]


def test_nobody_to_write_to(nowhere: str) -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    rows = pa.RecordBatch.from_pydict({"value": ["a"]})
    sink = FeliceDataSource(
        {"kafka.bootstrap.servers": nowhere, "topic": "t", "kafka.request.timeout.ms": "100"}
    )
    writer = sink.writer(StructType([StructField("value", StringType())]), overwrite=False)
    line, frames = told(lambda: writer.write(iter([rows])))
    assert "no broker answers" in line
    assert frames == ["<lambda>", "call"]


def test_what_goes_wrong_while_it_is_read() -> None:
    @plain_errors_while_read
    def rows() -> Iterator[int]:
        yield 1
        raise failure(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not yours")

    found = rows()
    assert next(found) == 1
    line, frames = told(lambda: next(found))
    assert line.endswith("ClusterError: Broker: Not authorised for the topic: not yours")
    assert frames == ["<lambda>", "call"]


def test_a_fault_of_ours_keeps_its_way() -> None:
    @plain_errors
    def faulty() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError) as caught:
        faulty()
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][-1] == "faulty"
    assert issubclass(OptionError, QueryError)
