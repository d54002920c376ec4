"""The SQL server over its REST API, on a broker: statements, push and pull queries, a restart, and several servers.

No persistent query runs here; those are in `test_sql_server_on_spark`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

pytest.importorskip("pyspark", reason="the server needs Spark: pip install 'felice[spark]'")

from conformance.live_process import LiveProcess
from conformance.sql_process import SqlProcess
from conformance.targets import Target
from conformance.web_process import FELICE, LIMIT_S
from conformance.wire import unique_name
from felice.client import AdminClient, NewTopic, Producer
from felice.web.application import application
from felice.web.serving import WebServer
from felice.web.tls import server_tls
from peers.authority import Authority
from peers.ksqldb_java import run_ksql_client
from unit.web.serving_app import ROUTES
from waiting import wait_until

pytestmark = pytest.mark.timeout(300)
WORKER = "ksql.connect.url"


@pytest.fixture(scope="module")
def server(broker: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlProcess]:
    directory = tmp_path_factory.mktemp("sql")
    options = directory / "connect.properties"
    options.write_text(f"{WORKER}=http://127.0.0.1:1\n")
    words = ("--connect-config", str(options))
    with SqlProcess(broker.bootstrap, directory / "data", unique_name("sql"), *words) as process:
        yield process
        assert process.stop() == 0


def stream(server: SqlProcess, columns: str = "k STRING KEY, v INT", **more: str) -> str:
    """A new stream; its topic has its name in capitals."""
    name = unique_name("s").replace("-", "_").upper()
    options = "".join(f", {option}={value}" for option, value in ({"partitions": "2"} | more).items())
    server.ksql(
        f"CREATE STREAM {name} ({columns}) WITH (kafka_topic='{name}', value_format='JSON'{options});"
    )
    return name


def test_statements_and_what_they_answer(server: SqlProcess) -> None:
    name = unique_name("t").replace("-", "_").upper()
    (created,) = server.ksql(
        f"CREATE STREAM {name} (k STRING KEY, v ARRAY<INT>) WITH (kafka_topic='{name}', format='JSON', partitions=3);"
    )
    assert created["commandId"] == f"stream/`{name}`/create"
    assert created["commandStatus"]["status"] == "SUCCESS"
    assert server.call("GET", f"/status/stream/{name}/create")["status"] == "SUCCESS"
    (again,) = server.ksql(
        f"CREATE STREAM IF NOT EXISTS {name} (k STRING KEY, v INT) WITH (kafka_topic='x', format='JSON');"
    )
    assert (again["@type"], "exists already" in again["message"]) == ("warning_entity", True)
    listed, described, topics = server.ksql(f"SHOW STREAMS; DESCRIBE {name}; SHOW TOPICS;")
    assert {
        "name": name,
        "type": "STREAM",
        "topic": name,
        "keyFormat": "JSON",
        "valueFormat": "JSON",
    }.items() <= next(one for one in listed["streams"] if one["name"] == name).items()
    fields = described["sourceDescription"]["fields"]
    assert [one["schema"]["type"] for one in fields] == ["STRING", "ARRAY"]
    assert {"name": name, "replicaInfo": [1, 1, 1]} in topics["topics"]
    (function,) = server.ksql("DESCRIBE FUNCTION ucase;")
    assert function["functions"][0]["returnType"] == "STRING"
    (asserted,) = server.ksql(f"ASSERT TOPIC {name} WITH (partitions=3);")
    assert asserted["exists"] is True
    (dropped,) = server.ksql(f"DROP STREAM {name} DELETE TOPIC;")
    assert dropped["commandId"] == f"stream/`{name}`/drop"
    (topics,) = server.ksql("SHOW TOPICS;")
    assert name not in {one["name"] for one in topics["topics"]}


def test_a_refused_statement_has_the_answers_before_it(server: SqlProcess) -> None:
    refused = server.refused("/ksql", "SHOW TYPES; DROP STREAM nothing; SHOW TYPES;")
    assert refused["@type"] == "statement_error"
    assert (refused["error_code"], refused["statementText"]) == (40001, "DROP STREAM nothing;")
    assert [one["@type"] for one in refused["entities"]] == ["type_list"]


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("/ksql", "SELEC 1;", "line 1:1: expected a statement"),
        ("/ksql", "", "the request has no statement"),
        ("/ksql", "SELECT * FROM s EMIT CHANGES;", "must use the /query endpoint"),
        ("/ksql", f"SET '{WORKER}'='http://127.0.0.1:2';", f"only the start of the server decides {WORKER}"),
        ("/ksql", "RUN SCRIPT 'x';", "does not support RUN statements"),
        ("/ksql", "SET 'auto.offset.rest'='earliest';", "no setting auto.offset.rest; did you mean"),
        ("/ksql", "ASSERT TOPIC no_topic TIMEOUT 1 MILLISECOND;", "Topic no_topic does not exist"),
        ("/ksql", "EXPLAIN nothing;", "there is no query NOTHING"),
        ("/query", "SHOW STREAMS;", "one SELECT or PRINT"),
        ("/query", "SELECT * FROM nothing EMIT CHANGES;", "NOTHING does not exist"),
        ("/query", "PRINT nothing;", "Could not find topic 'nothing'"),
        ("/query-stream", "PRINT nothing;", "PRINT must use the /query endpoint"),
    ],
)
def test_what_is_refused(server: SqlProcess, path: str, text: str, reason: str) -> None:
    assert reason in server.refused(path, text)["message"]


def test_a_setting_of_the_system(server: SqlProcess) -> None:
    setting = "ksql.functions.collect_set.limit"
    altered, shown = server.ksql(f"ALTER SYSTEM '{setting}'='77'; SHOW PROPERTIES;")
    assert altered["@type"] == "currentStatus"
    assert {"name": setting, "scope": "KSQL", "value": "77", "editable": True} in shown["properties"]


def test_connectors_of_a_worker_that_is_away(server: SqlProcess) -> None:
    shown, properties = server.ksql("SHOW CONNECTORS; SHOW PROPERTIES;")
    assert shown["@type"] == "error_entity"
    assert "no Connect worker answers at http://127.0.0.1:1" in shown["errorMessage"]
    option = {"name": WORKER, "scope": "KSQL", "value": "http://127.0.0.1:1", "editable": False}
    assert option in properties["properties"]
    answer = server.post("/ksql", {"ksql": "DROP CONNECTOR c;"})
    assert (answer.status_code, answer.json()["error_code"]) == (500, 50000)


def test_bodies_that_are_refused(server: SqlProcess) -> None:
    for body, status in (
        ([], 400),
        ({}, 400),
        ({"ksql": 1}, 400),
        ({"ksql": "SHOW TYPES;", "streamsProperties": []}, 400),
        ({"ksql": "SHOW TYPES;", "nonsense": 1}, 400),
        ({"ksql": "SHOW TYPES;" + " " * 2_000_000}, 400),
    ):
        assert server.post("/ksql", body).status_code == status, body
    answer = httpx2.post(
        server.url + "/ksql",
        content='{"ksql": "SHOW TYPES;"}',
        headers={"content-type": "application/x-www-form-urlencoded", "origin": "http://evil.example"},
        trust_env=False,
    )
    assert answer.status_code == 415
    deep = "SELECT " + "(" * 10_000 + "1" + ")" * 10_000 + " FROM s EMIT CHANGES;"
    assert "nest" in server.refused("/query", deep)["message"]
    assert server.call("GET", "/nothing")[0] == 404
    assert server.call("GET", "/healthcheck")["isHealthy"] is True


def test_push_and_pull_queries_of_a_stream(server: SqlProcess) -> None:
    name = stream(server, partitions="1")
    server.ksql("".join(f"INSERT INTO {name} (k, v) VALUES ('{key}', {n});" for n, key in enumerate("abab")))
    wanted = [["a", 0], ["a", 2], ["b", 1], ["b", 3]]
    assert sorted(server.rows(f"SELECT k, v FROM {name};")) == wanted
    assert sorted(server.rows(f"SELECT k, v FROM {name} EMIT CHANGES LIMIT 4;")) == wanted
    assert sorted(server.rows(f"SELECT k, rowoffset FROM {name} WHERE v > 1;")) == [["a", 2], ["b", 3]]
    counts = server.rows(f"SELECT k, COUNT(*) AS n FROM {name} GROUP BY k EMIT CHANGES LIMIT 4;")
    assert sorted(counts) == [["a", 1], ["a", 2], ["b", 1], ["b", 2]]
    assert server.rows(f"SELECT k FROM {name} EMIT CHANGES LIMIT 0;") == []
    body = {"ksql": f"SELECT k, v FROM {name} EMIT CHANGES LIMIT 1;"}
    header, row, last = server.post("/query", body).json()
    assert header["header"]["schema"] == "`K` STRING, `V` INTEGER"
    assert len(row["row"]["columns"]) == 2
    assert last == {"finalMessage": "Limit Reached"}
    lines = server.post("/query", {"ksql": f"PRINT {name} FROM BEGINNING LIMIT 2;"}).text.splitlines()
    assert lines[:2] == ["Key format: KAFKA_STRING", "Value format: JSON"]
    assert [line.split(", ")[1] for line in lines[2:]] == ["key: a", "key: b"]


def test_decimals_keep_their_digits(server: SqlProcess) -> None:
    name = stream(server, "k STRING KEY, d DECIMAL(6, 2)")
    server.ksql(f"INSERT INTO {name} (k, d) VALUES ('a', 1.10);")
    answer = server.post("/query-stream", {"sql": f"SELECT d, ARRAY[d] AS l FROM {name};"})
    assert answer.text.splitlines()[1] == "[1.10,[1.10]]"


def test_a_push_query_goes_on_until_it_is_closed(server: SqlProcess, broker: Target) -> None:
    name = stream(server)
    body = {"sql": f"SELECT v FROM {name} EMIT CHANGES;", "properties": {"auto.offset.reset": "latest"}}
    with server.streamed("/query-stream", body) as lines:
        id = json.loads(next(lines))["queryId"]
        with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
            producer.produce(name, b'{"v": 7}', b"a")
        assert json.loads(next(lines)) == [7]
        assert server.post("/close-query", {"queryId": id}).status_code == 200
        assert list(lines) == []
    assert server.call("POST", "/close-query", {"queryId": id}) == (400, 40000)


def test_set_before_a_select_counts_by_either_name(server: SqlProcess) -> None:
    name = stream(server)
    server.ksql(f"INSERT INTO {name} (k, v) VALUES ('a', 1);")
    setting = "SET 'ksql.streams.auto.offset.reset' = 'latest';"
    with server.streamed("/query-stream", {"sql": f"{setting} SELECT v FROM {name} EMIT CHANGES;"}) as lines:
        next(lines)
        server.ksql(f"INSERT INTO {name} (k, v) VALUES ('a', 2);" * 20)
        assert json.loads(next(lines)) == [2]


def test_a_record_that_cannot_be_read_stops_no_query(server: SqlProcess, broker: Target) -> None:
    name = stream(server, partitions="1")
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for value in (b"no JSON", b'{"v": 1}', b'{"v": "x"}', b'{"v": 2}'):
            producer.produce(name, value, b"a")
    for text in (f"SELECT v FROM {name};", f"SELECT v FROM {name} EMIT CHANGES LIMIT 2;"):
        assert server.rows(text) == [[1], [2]]


def test_source_tables_are_looked_up(server: SqlProcess, broker: Target) -> None:
    name = unique_name("u").replace("-", "_").upper()
    server.ksql(
        f"CREATE SOURCE TABLE {name} (k BIGINT PRIMARY KEY, v STRING) "
        f"WITH (kafka_topic='{name}', value_format='JSON', partitions=2);"
    )
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for key, value in ((1, "a"), (2, "b"), (1, "c"), (3, "d"), (3, None)):
            written = None if value is None else json.dumps({"v": value}).encode()
            producer.produce(name, written, key.to_bytes(8, "big"))
    assert sorted(server.rows(f"SELECT * FROM {name};")) == [[1, "c"], [2, "b"]]
    assert server.rows(f"SELECT v FROM {name} WHERE k = 1;") == [["c"]]
    assert server.rows(f"SELECT v FROM {name} WHERE k = 3;") == []
    scan = "ksql.query.pull.table.scan.enabled"
    assert server.rows(f"SELECT v FROM {name} WHERE k IN (2);", **{scan: "false"}) == [["b"]]
    refused = server.post("/query-stream", {"sql": f"SELECT v FROM {name};", "properties": {scan: "false"}})
    assert "no condition on the key" in refused.json()["message"]


def test_rows_are_inserted_as_json(server: SqlProcess) -> None:
    name = stream(server)
    lines = [{"target": name.lower()}, {"k": "a", "V": 1}, {"K": "b"}, {"nonsense": 1}, {"k": "c", "v": 3}]
    answer = httpx2.post(
        server.url + "/inserts-stream",
        content="\n".join(map(json.dumps, lines)),
        headers={"content-type": "application/json"},
        trust_env=False,
    )
    acks = [json.loads(line) for line in answer.text.splitlines()]
    assert [one["status"] for one in acks] == ["ok", "ok", "error"]
    assert sorted(server.rows(f"SELECT k, v FROM {name};")) == [["a", 1], ["b", None]]


def test_a_client_that_goes_away_ends_its_query(server: SqlProcess) -> None:
    """Or a hundred of them would be all that the server ever runs."""
    name = stream(server)
    for _ in range(3):
        with server.streamed("/query", {"ksql": f"SELECT * FROM {name} EMIT CHANGES;"}) as lines:
            next(lines)
    body = {"sql": f"SELECT * FROM {name} EMIT CHANGES;"}
    ids = []
    for _ in range(100):
        with server.streamed("/query-stream", body) as lines:
            ids.append(json.loads(next(lines))["queryId"])
    wait_until(lambda: server.call("POST", "/close-query", {"queryId": ids[0]})[0] == 400)
    server.ksql(f"INSERT INTO {name} (k, v) VALUES ('a', 1);")
    assert server.rows(f"SELECT v FROM {name} EMIT CHANGES LIMIT 1;") == [[1]]


def test_metrics_and_health(server: SqlProcess) -> None:
    text = httpx2.get(server.url + "/metrics", trust_env=False).text
    assert "felice_sql_leads 1" in text.splitlines()
    assert server.call("GET", "/healthcheck")["details"] == {
        name: {"isHealthy": True} for name in ("kafka", "commandRunner", "metastore")
    }


def test_a_server_of_a_file_takes_no_statements(broker: Target, tmp_path: Path) -> None:
    topic, file = unique_name("filed"), tmp_path / "queries.sql"
    file.write_text(
        "SET 'auto.offset.reset' = 'earliest';\n"
        f"CREATE STREAM filed (k STRING KEY, v INT) WITH (kafka_topic='{topic}', value_format='JSON', partitions=1);"
    )
    words = ("--queries-file", str(file))
    with SqlProcess(broker.bootstrap, tmp_path / "sql", unique_name("file"), *words) as server:
        server.ksql("INSERT INTO filed (k, v) VALUES ('a', 1);")
        assert server.rows("SELECT v FROM filed;") == [[1]]
        assert "runs the queries of a file" in server.refused("/ksql", "CREATE TYPE t AS INT;")["message"]
        (topics,) = server.ksql("SHOW ALL TOPICS;")
        assert not [one for one in topics["topics"] if one["name"].startswith("_confluent-ksql-file")]
        assert server.stop() == 0
    file.write_text("CREATE STREAM;")
    command = [*FELICE, "sql-server", "--bootstrap-server", broker.bootstrap, "--port", "0", *words]
    command += ["--data", str(tmp_path / "other")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert (found.returncode, len(found.stderr.splitlines())) == (1, 1)
    assert "line 1:14: expected" in found.stderr


def test_a_directory_of_another_server_is_refused(server: SqlProcess, broker: Target) -> None:
    """Both would write the same files."""
    words = [
        "sql-server",
        "--bootstrap-server",
        broker.bootstrap,
        "--port",
        "0",
        "--data",
        str(server.directory),
    ]
    found = subprocess.run([*FELICE, *words], capture_output=True, text=True, timeout=LIMIT_S)
    assert (found.returncode, len(found.stderr.splitlines())) == (1, 1)
    assert f"another SQL server uses the directory {server.directory}" in found.stderr


def test_a_push_query_outlives_a_restart_of_the_broker(tmp_path: Path) -> None:
    with (
        LiveProcess(tmp_path / "broker") as live,
        SqlProcess(live.bootstrap, tmp_path / "sql", "restarted") as server,
    ):
        name = stream(server, partitions="1")
        with server.streamed("/query-stream", {"sql": f"SELECT v FROM {name} EMIT CHANGES;"}) as lines:
            next(lines)
            live.terminate()
            with LiveProcess(tmp_path / "broker", live.port) as again:
                with Producer({"bootstrap.servers": again.bootstrap}) as producer:
                    producer.produce(name, b'{"v": 7}', b"a")
                assert json.loads(next(lines)) == [7]


def test_a_second_server_forwards_and_takes_over(broker: Target, tmp_path: Path) -> None:
    name, topic = unique_name("sql"), unique_name("s").replace("-", "_").upper()
    create = (
        f"CREATE STREAM {topic} (k STRING KEY, v INT) "
        f"WITH (kafka_topic='{topic}', value_format='JSON', partitions=1);"
    )
    with (
        SqlProcess(broker.bootstrap, tmp_path / "one", name) as first,
        SqlProcess(broker.bootstrap, tmp_path / "two", name) as second,
    ):
        second.ksql(create)
        second.ksql(f"INSERT INTO {topic} (k, v) VALUES ('a', 1);")
        assert first.rows(f"SELECT v FROM {topic};") == second.rows(f"SELECT v FROM {topic};") == [[1]]
        first.kill()

        def takes_over() -> bool:
            answer = second.post("/ksql", {"ksql": f"CREATE TYPE {topic} AS INT;"})
            assert answer.status_code in (200, 400, 503), answer.text
            return answer.status_code == 200

        wait_until(takes_over, 60)
        (types,) = second.ksql("SHOW TYPES;")
        assert topic in types["types"]
    with SqlProcess(broker.bootstrap, tmp_path / "three", name) as third:
        shown, listed = third.ksql("SHOW TYPES; SHOW STREAMS;")
        assert (list(shown["types"]), [one["name"] for one in listed["streams"]]) == ([topic], [topic])
        assert third.call("POST", "/ksql/terminate", {"deleteTopicList": ["("]}) == (400, 40001)
        assert third.call("POST", "/ksql/terminate", {"deleteTopicList": "x"}) == (400, 40000)
        (ended,) = third.call("POST", "/ksql/terminate", {})
        assert ended["commandId"] == "cluster/TerminateCluster/terminate"
        for path, body in (("/ksql", {"ksql": "SHOW TYPES;"}), ("/query", {"ksql": f"PRINT {topic};"})):
            assert third.call("POST", path, body) == (503, 50300)
        assert third.call("GET", "/info")["KsqlServerInfo"]["serverStatus"] == "TERMINATED"
        topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).topics
        assert topic in topics
        assert f"_confluent-ksql-{name}_command_topic" not in topics
        assert third.stop() == 0


def test_pages_of_other_sites_may_send_nothing(server: SqlProcess) -> None:
    """A browser sends a body without a content type, or with text/plain, without asking the server."""
    name = stream(server)
    for path, body in (
        ("/ksql", '{"ksql": "SHOW TYPES;"}'),
        ("/query", f'{{"ksql": "SELECT * FROM {name};"}}'),
        ("/inserts-stream", f'{{"target": "{name}"}}\n{{"k": "a", "v": 1}}\n'),
    ):
        for media in ({}, {"content-type": "text/plain"}):
            answer = httpx2.post(
                server.url + path,
                content=body,
                headers={"origin": "http://evil.example", **media},
                trust_env=False,
            )
            assert answer.status_code == 415, path
    assert server.rows(f"SELECT * FROM {name};") == []


def test_a_query_whose_answer_is_not_acceptable_does_not_run_on(server: SqlProcess) -> None:
    body = {"sql": f"SELECT * FROM {stream(server)} EMIT CHANGES;"}
    for _ in range(101):
        assert server.post("/query-stream", body, accept="text/xml").status_code == 406
    with server.streamed("/query-stream", body) as lines:
        assert "queryId" in next(lines)


def test_lines_of_inserts_that_cannot_be_written(server: SqlProcess) -> None:
    name = stream(server)
    for line, reason in (
        ("{bad", "not JSON"),
        ('{"k": "a", "v": NaN}', "NaN"),
        (json.dumps({"k": "a" * 2_000_000, "v": 1}), "The record batch is larger"),
    ):
        answer = httpx2.post(
            server.url + "/inserts-stream",
            content=f'{{"target": "{name}"}}\n{{"k": "a", "v": 1}}\n{line}\n',
            trust_env=False,
        )
        assert answer.status_code == 200
        first, second = (json.loads(one) for one in answer.text.splitlines())
        assert first == {"status": "ok", "seq": 0}
        assert (second["status"], second["seq"]) == ("error", 1) and reason in second["message"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("auto.offset.reset", "bogus"),
        ("ksql.functions.collect_list.limit", "many"),
        ("ksql.functions.collect_set.limit", "many"),
        ("ksql.timestamp.throw.on.invalid", "perhaps"),
        ("ksql.query.pull.table.scan.enabled", "perhaps"),
    ],
)
def test_settings_with_values_that_mean_nothing(server: SqlProcess, name: str, value: str) -> None:
    topic = stream(server)
    query = f"SELECT COLLECT_LIST(v), COLLECT_SET(v) FROM {topic} GROUP BY k EMIT CHANGES;"
    for answer in (
        server.post("/query-stream", {"sql": query, "properties": {name: value}}),
        server.post("/query-stream", {"sql": f"SET '{name}'='{value}'; {query}"}),
        server.post("/ksql", {"ksql": "SHOW TYPES;", "streamsProperties": {name: value}}),
    ):
        assert answer.status_code == 400, answer.text
        assert name in answer.json()["message"]


def test_an_assertion_waits_an_hour_at_most(server: SqlProcess) -> None:
    text = "ASSERT TOPIC no_topic TIMEOUT 2 HOURS;"
    assert "waits at most 3600 seconds" in server.refused("/ksql", text)["message"]


def test_a_request_has_a_thousand_statements_at_most(server: SqlProcess) -> None:
    assert "the limit is 1,000 statements" in server.refused("/ksql", "SHOW TYPES;" * 1_001)["message"]


def test_a_topic_that_is_deleted_and_made_again(server: SqlProcess, broker: Target) -> None:
    """A SELECT has no row of the old topic, and one without a topic says so."""
    name = stream(server)
    server.ksql(
        f"CREATE SOURCE TABLE {name}_T (k STRING PRIMARY KEY, v INT) WITH (kafka_topic='{name}', value_format='JSON');"
    )
    insert, select = f"INSERT INTO {name} (k, v) VALUES ('{{0}}', 1);", f"SELECT k FROM {name}_T;"
    server.ksql("".join(insert.format(number) for number in range(50)))
    assert len(server.rows(select)) == 50
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([name])[name].result(30)
    for path, text in (("/query-stream", select), ("/query-stream", f"SELECT * FROM {name} EMIT CHANGES;")):
        answer = server.post(path, {"sql": text})
        assert f"there is no topic {name}" in answer.text
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    assert server.rows(select) == []
    server.ksql(insert.format("new"))
    assert server.rows(select) == [["new"]]


def test_statements_are_answered_beside_as_many_queries_as_may_run(server: SqlProcess) -> None:
    body = {"ksql": f"PRINT {stream(server)};"}
    address = urlsplit(server.url)
    text = json.dumps(body).encode()
    request = b"POST /query HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    with ExitStack() as open_ones:
        for _ in range(100):
            one = open_ones.enter_context(socket.create_connection((address.hostname, address.port)))
            one.sendall(request % len(text) + text)

        def is_full() -> bool:
            answer = server.post("/query", {"ksql": body["ksql"].replace(";", " LIMIT 0;")})
            return answer.status_code == 400 and "100 queries run already" in answer.text

        wait_until(is_full, 100)
        assert server.ksql("SHOW TYPES;")


def test_a_registry_that_does_not_answer_holds_no_other_statement(broker: Target, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        registry = f"http://127.0.0.1:{silent.getsockname()[1]}"
        words = ("--schema-registry", registry)
        with (
            SqlProcess(broker.bootstrap, tmp_path / "sql", unique_name("sql"), *words) as server,
            ThreadPoolExecutor(40) as clients,
        ):
            name = stream(server)
            server.ksql(
                f"CREATE STREAM a (k STRING KEY, v INT) WITH (kafka_topic='{name}', value_format='AVRO');"
            )
            body = {"ksql": "INSERT INTO a (k, v) VALUES ('a', 1);"}
            waiting = [clients.submit(server.post, "/ksql", body) for _ in range(40)]
            time.sleep(1)
            begun = time.monotonic()
            server.ksql("SHOW TYPES;")
            assert time.monotonic() - begun < 5
            assert not any(one.done() for one in waiting)
            server.kill()
            for one in waiting:
                assert one.exception(60) is not None


def test_calls_of_ksqldbs_java_client(server: SqlProcess) -> None:
    """Over HTTP/2, with the HTTP client that it uses."""
    name = unique_name("s").replace("-", "_").upper()
    got = run_ksql_client(server.url, name)
    info = got["serverInfo"]
    assert (info["status"], info["version"]) == (200, "HTTP_2")
    assert json.loads(info["body"])["KsqlServerInfo"]["serverStatus"] == "RUNNING"
    assert json.loads(got["executeStatement"]["body"])[0]["commandId"] == f"stream/`{name}`/create"
    failed = got["a statement that fails"]
    assert (failed["status"], json.loads(failed["body"])["error_code"]) == (400, 40001)
    acks = [{"status": "ok", "seq": row} for row in range(3)]
    assert got["streamInserts"] == {"acks": acks, "ends": True}
    assert got["insertInto"] == {"ack": {"status": "ok", "seq": 0}, "ends": True}
    rows = [["a", 0], ["a", 1], ["a", 2], ["b", 9]]
    assert got["executeQuery"]["rows"] == rows
    pushed = got["streamQuery"]
    assert (pushed["columnNames"], pushed["columnTypes"]) == (["K", "V"], ["STRING", "INTEGER"])
    assert pushed["rows"] == rows
    assert (got["terminatePushQuery"]["status"], got["terminatePushQuery"]["ends"]) == (200, True)
    assert got["a query that was reset"]["ends"] is True


def test_vertx_chooses_http2_over_tls(tmp_path: Path) -> None:
    authority = Authority()
    authority.issue().write_pem(tmp_path / "server.pem")
    authority.write_trust(tmp_path / "ca.pem")
    tls = server_tls({"ssl.keystore.type": "PEM", "ssl.keystore.location": "server.pem"}, tmp_path)

    async def scenario() -> None:
        async with WebServer(application(ROUTES), "127.0.0.1", 0, tls=tls) as serving:
            arguments = (serving.url, str(tmp_path / "ca.pem"), "/large")
            (got,) = (await asyncio.to_thread(run_ksql_client, *arguments)).values()
        assert (got["status"], got["version"], len(got["body"])) == (200, "HTTP_2", 5_000_000)

    asyncio.run(scenario())


def test_inserts_over_http2_are_acknowledged_while_the_request_goes_on(server: SqlProcess) -> None:
    """Also if it has more lines than fit into a window; and a line that fails ends it."""
    name = stream(server)
    url = server.url + "/inserts-stream"
    first = json.dumps({"target": name})
    with httpx2.Client(http1=False, http2=True, trust_env=False, timeout=LIMIT_S) as client:
        lines = [first, *(json.dumps({"k": "c" * 200, "v": row}) for row in range(500))]
        answer = client.post(url, content="\n".join(lines))
        assert answer.http_version == "HTTP/2"
        acks = [json.loads(line) for line in answer.text.splitlines()]
        assert acks == [{"status": "ok", "seq": row} for row in range(500)]
        answer = client.post(url, content=f'{first}\r\n{{"k": "a"}}\r\n{{"k": "{"a" * 3_000_000}"}}\n')
        first_ack, second = map(json.loads, answer.text.splitlines())
        assert (first_ack, second["message"]) == (
            {"status": "ok", "seq": 0},
            "a line may have 2,097,152 bytes",
        )
        for body in ("", "\n", first.replace(name, "nothing")):
            assert client.post(url, content=body).status_code == 400, body
