"""`felice sql` with the SQL server on a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the server needs Spark: pip install 'felice[spark]'")

from click.testing import CliRunner, Result

from conformance.sql_process import SqlProcess
from conformance.targets import Target
from conformance.wire import unique_name
from felice.cli.main import felice

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def server(broker: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlProcess]:
    folder = tmp_path_factory.mktemp("sql")
    with SqlProcess(broker.bootstrap, folder / "data", unique_name("shell")) as process:
        yield process


def shell(server: SqlProcess, *words: str) -> Result:
    return CliRunner().invoke(felice, ["sql", server.url, *words])


def test_a_script(server: SqlProcess, tmp_path: Path) -> None:
    """Names that need quotes, values with them, and the rows of PRINT and of both kinds of queries."""
    topic = unique_name("orders")
    script = tmp_path / "orders.sql"
    script.write_text(
        f"""
        DEFINE topic = '{topic}';
        CREATE STREAM `o;rders` (id STRING KEY, amount DECIMAL(6, 2), tags ARRAY<STRING>)
          WITH (kafka_topic = '${{topic}}', value_format = 'JSON', key_format = 'KAFKA', partitions = 1);
        INSERT INTO `o;rders` VALUES ('it''s', 1.25, ARRAY['a', 'b;']);
        INSERT INTO `o;rders` VALUES ('2', NULL, NULL); -- the last;
        DESCRIBE `o;rders`;
        SELECT * FROM `o;rders` EMIT CHANGES LIMIT 2;
        SELECT id FROM `o;rders`;
        PRINT '${{topic}}' FROM BEGINNING LIMIT 1;
        """
    )
    found = shell(server, "-f", str(script))
    assert (found.exit_code, found.stderr) == (0, "")
    lines = ["".join(line.split()) for line in found.stdout.splitlines()]
    for line in (
        "ID|VARCHAR(STRING)(key)",
        "AMOUNT|DECIMAL(6,2)",
        "TAGS|ARRAY<VARCHAR(STRING)>",
        "|ID|AMOUNT|TAGS|",
        "|it's|1.25|[a,b;]|",
        "|2|null|null|",
        "|it's|",
    ):
        assert line in lines, found.stdout
    assert "Limit Reached\nQuery terminated\n" in found.stdout
    assert "key: it's, value: " in found.stdout


def test_errors_and_json(server: SqlProcess) -> None:
    found = shell(server, "--output", "JSON", "-e", "SHOW VARIABLES; DESCRIBE missing;")
    assert found.exit_code == 255
    assert found.stderr.startswith("error: ") and "MISSING" in found.stderr
    decoder = json.JSONDecoder()
    variables, end = decoder.raw_decode(found.stdout)
    error, _ = decoder.raw_decode(found.stdout[end:].lstrip())
    assert variables[0]["@type"] == "variables"
    assert (error["@type"], error["error_code"]) == ("statement_error", 40001)
    unknown = shell(server, "-e", "SET 'no.such.property' = '1';")
    assert (unknown.exit_code, "no.such.property" in unknown.stderr) == (255, True)


def test_what_completion_asks_for(server: SqlProcess) -> None:
    from felice.pipelines.sql.shell.client import Server
    from felice.pipelines.sql.shell.completion import names_of

    topic = unique_name("t")
    server.ksql(
        f"CREATE STREAM completed (shape INT) WITH (kafka_topic='{topic}', value_format='JSON', partitions=1);"
    )
    client = Server(server.url)
    found = names_of(client)
    client.close()
    assert "COMPLETED" in found.sources
    assert "SHAPE" in found.columns
    assert {"UCASE", "COUNT"} <= set(found.functions)
    assert topic in found.topics


def test_files_are_planned_and_applied(server: SqlProcess, tmp_path: Path) -> None:
    """What the server has is left alone, what is written otherwise is replaced, and the rest is named or dropped."""
    topic = unique_name("applied")
    file, extra = tmp_path / "all" / "streams.sql", tmp_path / "extra.sql"
    file.parent.mkdir()
    file.write_text(
        "CREATE STREAM applied (k STRING KEY, v INT)\n"
        f"  WITH (kafka_topic='{topic}', value_format='JSON', partitions=1);"
    )
    extra.write_text(
        f"CREATE STREAM more (k STRING KEY, v INT) WITH (kafka_topic='{topic}', value_format='JSON', partitions=1);"
    )

    def actions(command: str, *words: str) -> dict[str, str]:
        found = CliRunner().invoke(felice, ["sql", command, *words, "--server", server.url, "--json"])
        assert found.exit_code == 0, found.output
        return {one["name"]: one["action"] for one in json.loads(found.stdout)}

    assert actions("plan", str(file.parent))["APPLIED"] == "create"
    assert actions("apply", str(file), str(extra))["MORE"] == "create"
    file.write_text(file.read_text().replace("v INT", "v INT, w INT"))
    planned = actions("plan", str(file))
    assert (planned["APPLIED"], planned["MORE"]) == ("replace", "not in the files")
    done = actions("apply", str(file), "--prune")
    assert (done.pop("APPLIED"), done["MORE"], set(done.values())) == ("replace", "drop", {"drop"})
    assert actions("plan", str(file)) == {"APPLIED": "keep"}
    (described,) = server.ksql("DESCRIBE applied;")
    assert [one["name"] for one in described["sourceDescription"]["fields"]] == ["K", "V", "W"]
    file.write_text("CREATE STREAM applied (k STRING KEY) WITH (kafka_topic='x', format='JSON');")
    found = CliRunner().invoke(felice, ["sql", "apply", str(file), "--server", server.url])
    assert (found.exit_code, "APPLIED:" in found.output, len(found.output.splitlines())) == (1, True, 1)
