"""A query reads only the columns that it uses: formats of some columns read what the whole format reads of them."""

from __future__ import annotations

from decimal import Decimal as Number
from typing import Any

import pytest

from felice.pipelines.errors import FormatError
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.programs import program_of
from felice.pipelines.sql.rows import FormatDescription, row_format
from felice.pipelines.sql.rows.columns import RowFormat
from felice.pipelines.sql.rows.registry import MemoryRegistry
from felice.pipelines.sql.types import BIGINT, INTEGER, STRING, Decimal
from felice.streams import TestDriver

COLUMNS = (("A", STRING), ("B", INTEGER), ("C", Decimal(5, 2)), ("D", BIGINT))
ROW = ("a b", 7, Number("1.50"), 1 << 40)
NAMES = ("JSON", "DELIMITED", "AVRO", "JSON_SR", "PROTOBUF", "PROTOBUF_NOSR")
GIVEN = "CREATE STREAM s (k STRING KEY, a STRING, n INT, t BIGINT) WITH (kafka_topic = 's', partitions = 1, "


def whole(name: str, columns: Any = COLUMNS) -> RowFormat:
    made = row_format(
        FormatDescription(name), columns, registry=MemoryRegistry(), subject="s-value", is_key=False
    )
    assert isinstance(made, RowFormat)
    return made


@pytest.mark.parametrize("places", [(), (0,), (2,), (0, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("name", NAMES)
def test_some_columns_are_those_of_the_row(name: str, places: tuple[int, ...]) -> None:
    format_ = whole(name)
    of_columns = format_.of_columns(places)
    assert (of_columns is not None and of_columns != format_) or places == (0, 1, 2, 3)
    data = format_.write(ROW)
    expected = tuple(ROW[place] for place in places)
    assert of_columns.read(data) == expected
    assert of_columns.decode_all([data, data]) == [expected, expected]
    assert of_columns.decode_all([data, None]) == [expected, None]


@pytest.mark.parametrize("name", ["KAFKA", "JSON", "AVRO"])
def test_a_bare_value_is_read_as_a_whole(name: str) -> None:
    description = FormatDescription(name, is_wrapped=False) if name != "KAFKA" else FormatDescription(name)
    made = row_format(
        description, (("A", STRING),), registry=MemoryRegistry(), subject="s-value", is_key=False
    )
    assert isinstance(made, RowFormat) and made.of_columns(()) is None


@pytest.mark.parametrize("name", NAMES)
def test_data_that_is_not_of_the_format_is_refused_without_any_column(name: str) -> None:
    of_columns = whole(name).of_columns(())
    assert of_columns is not None
    wrong = b"a,1,2" if name == "DELIMITED" else b"\x0a\xff"
    with pytest.raises(FormatError):
        of_columns.decode(wrong)


def counted(statements: str, values: list[str]) -> tuple[list[Any], int]:
    (app,) = program_of(statements, {}, built_in()).apps
    driver = TestDriver(app)
    for number, value in enumerate(values):
        driver.send_bytes("s", b"k", value.encode(), number)
    (topic,) = {one.topic for part in app.topology.parts() for one in part.sinks if not one.is_repartition}
    return [(record.value, record.timestamp) for record in driver.read(topic)], driver.skipped


@pytest.mark.parametrize(
    ("format_", "good", "bad", "broken"),
    [
        ("DELIMITED", "x,1,5", "x,one,5", "x,1"),
        ("JSON", '{"A": "x", "N": 1, "T": 5}', '{"A": "x", "N": [], "T": 5}', '{"A": "x", "N": [}'),
    ],
)
def test_a_value_is_checked_if_the_query_uses_its_column(
    format_: str, good: str, bad: str, broken: str
) -> None:
    given = f"{GIVEN}value_format = '{format_}');"
    lines = [good, bad, broken]
    unused = "CREATE STREAM r AS SELECT k, a FROM s;"
    assert counted(given + unused, lines)[1] == 1
    assert counted(given + "CREATE TABLE r AS SELECT k, COUNT(*) AS c FROM s GROUP BY k;", lines) == (
        [((1,), 0), ((2,), 1)],
        1,
    )
    for used in ("SELECT k, n FROM s", "SELECT k, a FROM s WHERE n > 0 OR TRUE"):
        assert counted(f"{given}CREATE STREAM r AS {used};", lines)[1] == 2


def test_the_column_with_the_time_of_records_is_read_although_the_query_does_not_use_it() -> None:
    given = f"{GIVEN}value_format = 'DELIMITED', timestamp = 't');"
    found, skipped = counted(f"{given}CREATE STREAM r AS SELECT k, a FROM s;", ["x,no,70", "x,1,no"])
    assert found == [(("x",), 70)] and skipped == 1


def test_a_table_of_a_topic_keeps_all_columns() -> None:
    given = GIVEN.replace("STREAM s (k STRING KEY", "TABLE s (k STRING PRIMARY KEY")
    text = f"{given}value_format = 'DELIMITED'); CREATE TABLE r AS SELECT k, a FROM s;"
    assert counted(text, ["x,1,5", "x,one,5"]) == ([(("x",), 0)], 1)
