"""Runs the statements of docs/sql-tutorial.md offline, and compares the rows that the page shows; checks the lists of
docs/from-ksqldb.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from felice.pipelines.sql.explain import explained
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.offline.cases import result_of
from felice.pipelines.sql.offline.files import outcome_of_files
from felice.pipelines.sql.rows.registry import MemoryRegistry
from felice.pipelines.sql.server.cluster import KnownTopics
from felice.pipelines.sql.server.commands import Command
from felice.pipelines.sql.server.engine import Engine, Read
from felice.pipelines.sql.server.facts import Noted
from felice.pipelines.sql.settings import KNOWN, TUNING
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.scripts import statements_of

DOCS = Path(__file__).parents[4] / "docs"
TUTORIAL = (DOCS / "sql-tutorial.md").read_text()
FROM_KSQLDB = (DOCS / "from-ksqldb.md").read_text()
BLOCKS = dict(re.findall(r"<!-- tutorial: (\w+) -->\n```\w+\n(.*?)```", TUTORIAL, re.DOTALL))
AFTER_BURST = ("tables", "rows", "burst")
PAYMENTS = {
    "p9": "INSERT INTO payments VALUES ('p9', 'bob', '0815', 4);",
    "p10": "INSERT INTO payments VALUES ('p10', 'bob', '0815', 4.50);",
    "p11": "INSERT INTO payments VALUES ('p11', 'bob', '0815', 9.00);",
    "p12": "INSERT INTO payments VALUES ('p12', 'bob', '0815', 100);",
}


def result(*statements: str) -> dict[str, Any]:
    found = result_of({"name": "tutorial", "statements": list(statements)}, built_in())
    assert found["error"] is None, found["error"]
    return found


def rows_of(found: dict[str, Any]) -> list[dict[str, str]]:
    """The rows of a SELECT, as the page writes them."""
    (response,) = found["responses"]
    names = re.findall(r"`(\w+)`", response["schema"])
    return [dict(zip(names, map(text_of, row), strict=True)) for row in response["rows"]]


def text_of(value: Any) -> str:
    return {None: "null", True: "true", False: "false"}.get(value) or str(value) if value != 1 else "1"


def tables_below(command: str) -> list[list[dict[str, str]]]:
    """The tables that the page shows below a command: a row is a dict by the names of columns."""
    found = []
    for text in re.findall(
        rf"^\$ [^\n]*{re.escape(command)}[^\n]*\n(\+.*?)\nQuery terminated", TUTORIAL, re.M | re.S
    ):
        header, *rows = [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in text.split("\n")
            if line[0] == "|"
        ]
        found.append([dict(zip(header, row, strict=True)) for row in rows])
    assert found, command
    return found


def without_times(rows: list[dict[str, str]]) -> list[tuple[tuple[str, str], ...]]:
    """The rows in some order, without the columns that depend on the clock."""
    times = ("WINDOWSTART", "WINDOWEND", "MINUTE")
    return sorted(tuple((name, value) for name, value in row.items() if name not in times) for row in rows)


def offline(select: str, blocks: tuple[str, ...], *more: str) -> list[tuple[tuple[str, str], ...]]:
    return without_times(rows_of(result(*(BLOCKS[one] for one in blocks), *more, select)))


@pytest.mark.parametrize(
    ("command", "select", "blocks", "more"),
    [
        ("FROM payments EMIT", "SELECT * FROM payments EMIT CHANGES LIMIT 3;", ("tables", "rows"), ()),
        ("FROM located EMIT", "SELECT * FROM located;", ("tables", "rows", "located"), ()),
        ("FROM suspects EMIT", "SELECT * FROM suspects;", (*AFTER_BURST, "suspects"), ()),
        (
            "AS minute, uses",
            "SELECT card, uses, total FROM suspects WHERE card = '2222';",
            (*AFTER_BURST, "suspects"),
            (),
        ),
        (
            "FROM totals WHERE customer = 'eve'",
            "SELECT * FROM totals WHERE customer = 'eve';",
            (*AFTER_BURST, "totals"),
            (),
        ),
    ],
)
def test_the_page_shows_the_rows_of_the_offline_runner(
    command: str, select: str, blocks: tuple[str, ...], more: tuple[str, ...]
) -> None:
    (shown,) = tables_below(command)
    assert offline(select, blocks, *more) == without_times(shown)


def test_totals_of_a_customer_after_each_step() -> None:
    """After the record that cannot be read, and before and after the restart."""
    more = list(PAYMENTS.values())
    select = "SELECT * FROM totals WHERE customer = 'bob';"
    shown = tables_below("FROM totals WHERE customer = 'bob'")
    wanted = [offline(select, ("tables", "rows", "totals"), *more[:count]) for count in (1, 3, 4)]
    assert [without_times(one) for one in shown] == wanted


def test_the_replaced_query_gives_the_last_row_that_is_shown() -> None:
    (shown,) = tables_below("FROM located WHERE customer = 'bob'")
    found = offline(
        "SELECT * FROM located WHERE customer = 'bob';",
        ("tables", "rows", "located", "replaced"),
        PAYMENTS["p10"],
        PAYMENTS["p11"],
    )
    assert found == without_times(shown[-1:])
    assert all(row["IS_UNKNOWN"] == "null" for row in shown[:-1]), "rows of the query before"


def test_the_refusal_of_the_page() -> None:
    command = re.search(r'-e "(CREATE OR REPLACE .*?;)"\nerror: (.*?)\n', TUTORIAL)
    assert command is not None
    statements = [*(BLOCKS[one] for one in ("tables", "located", "replaced")), command[1]]
    found = result_of({"name": "refused", "statements": statements}, built_in())
    assert found["error"] == command[2]


def test_a_record_that_cannot_be_read_is_skipped() -> None:
    raw = "CREATE STREAM raw (id STRING KEY, text STRING) WITH (kafka_topic = 'payments', value_format = 'KAFKA');"
    written = "INSERT INTO raw VALUES ('p8', 'twelve euros');"
    assert offline("SELECT * FROM totals;", ("tables", "totals"), raw, written, PAYMENTS["p9"]) == [
        (("CUSTOMER", "bob"), ("PAYMENTS", "1"), ("TOTAL", "4.00"))
    ]


def test_the_test_of_the_page_passes(tmp_path: Path) -> None:
    statements, given, wanted = (tmp_path / name for name in ("test.sql", "input.json", "output.json"))
    statements.write_text(BLOCKS["tables"] + BLOCKS["suspects"])
    given.write_text(BLOCKS["input"])
    wanted.write_text(BLOCKS["output"])
    assert outcome_of_files(statements, given, wanted, {}, built_in()) is None
    wanted.write_text(BLOCKS["output"].replace("10.00", "11.00"))
    assert "11.00" in str(outcome_of_files(statements, given, wanted, {}, built_in()))


def test_everything_can_be_dropped_in_the_order_of_the_page() -> None:
    result(*(BLOCKS[one] for one in ("tables", "located", "suspects", "totals", "drop")))


def test_the_page_shows_the_ids_and_the_plan_of_the_server() -> None:
    """The ids in its answers, the reason why `customers` cannot be dropped, and the execution plan."""
    registry = MemoryRegistry()
    engine = Engine(built_in(), {"auto.offset.reset": "earliest"}, registry)
    topics = KnownTopics({}, registry, registry)

    def run(text: str) -> Iterator[str]:
        for written in statements_of(text, {}):
            noted = Noted(topics)
            change = engine.change(written.statement, written.text, {}, noted)
            assert change is not None
            command = Command("stream/`X`/create", engine.commands, written.text, {}, noted.facts)
            engine.apply(command, Read(written.statement, written.text, change))
            yield change.message

    messages = [*run(BLOCKS["tables"])]
    for name in ("located", "suspects", "totals", "replaced"):
        messages += run(BLOCKS[name])
    ids = re.findall(r"with ID (\w+)", " ".join(messages))
    assert ids == re.findall(r"Created query with ID (\w+)", TUTORIAL)
    assert {*ids} == set(re.findall(r"C[ST]AS_\w+_\d", TUTORIAL))
    with pytest.raises(SqlError) as refusal:
        [*run("DROP TABLE customers;")]
    assert f"error: {refusal.value}\n" in TUTORIAL
    plan = explained(engine.queries["CSAS_LOCATED_2"].query.plan, engine.catalogue.sources["LOCATED"])
    assert f"Execution plan\n--------------\n{plan.strip()}\n```" in TUTORIAL


def names_below(marker: str) -> set[str]:
    """The names in the table that follows a marker."""
    table = re.search(rf"<!-- {marker} -->\n\n((?:\|.*\n)+)", FROM_KSQLDB)
    assert table is not None
    return set(re.findall(r"`([\w.]+)`", table[1]))


def test_the_functions_that_are_listed_are_there() -> None:
    syntax = {"ARRAY", "MAP"}
    assert names_below("functions") - syntax == set(built_in().names())


def test_all_settings_are_listed() -> None:
    listed = names_below("settings") - {"true", "latest"}
    assert listed == {*KNOWN, *TUNING}
