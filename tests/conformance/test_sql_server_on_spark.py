"""Persistent queries of the SQL server, killed with kill -9 under load: each record counts once, and a query that fails
stops no other.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

from conformance.sql_process import SPARK_LIMIT_S, SqlProcess
from conformance.targets import Target
from conformance.wire import unique_name
from felice.client import AdminClient, Producer
from waiting import wait_until

pytestmark = pytest.mark.timeout(1800)

KEYS, COUNT = 5, 4_000
DOMAIN = """
CREATE STREAM pay (who STRING KEY, amt INT) WITH (kafka_topic = '{0}-pay', value_format = 'JSON', partitions = 2);
CREATE STREAM big WITH (kafka_topic = '{0}-big') AS SELECT who, amt FROM pay WHERE amt >= 50;
CREATE TABLE totals WITH (kafka_topic = '{0}-totals') AS SELECT who, COUNT(*) AS n, SUM(amt) AS total
  FROM big GROUP BY who;
CREATE TABLE sums WITH (kafka_topic = '{0}-sums') AS SELECT who, SUM(CAST(amt * 50 AS DECIMAL(4, 0))) AS total
  FROM pay GROUP BY who;
"""


def ids_of(server: SqlProcess) -> dict[str, str]:
    """The states of queries."""
    (shown,) = server.ksql("SHOW QUERIES;")
    return {one["id"]: one["state"] for one in shown["queries"]}


def test_queries_survive_kill_9(broker: Target, tmp_path: Path) -> None:
    name = unique_name("sql")
    given = [(f"u{number % KEYS}", number % 100) for number in range(COUNT)]

    def feed() -> None:
        with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
            for number, (who, amount) in enumerate(given):
                producer.produce(f"{name}-pay", json.dumps({"amt": amount}).encode(), who.encode())
                if number % 40 == 0:
                    producer.flush()
                    fed.wait(0.1)

    fed = threading.Event()
    feeder = threading.Thread(target=feed)
    wanted = sorted(
        [who, len(amounts), sum(amounts)]
        for who in {who for who, _ in given}
        if (amounts := [amount for one, amount in given if one == who and amount >= 50])
    )
    with SqlProcess(broker.bootstrap, tmp_path / "sql", name) as server:
        server.ksql(DOMAIN.format(name))
        feeder.start()
        server.until("SELECT * FROM totals;", lambda rows: len(rows) == KEYS)
        server.kill()
    with SqlProcess(broker.bootstrap, tmp_path / "sql", name) as server:
        assert server.rows("SELECT * FROM totals;"), "the rows are there before Spark is"
        fed.set()
        feeder.join()
        server.until("SELECT * FROM totals;", lambda rows: sorted(rows) == wanted)
        assert server.rows("SELECT n FROM totals WHERE who = 'u3';") == [
            [next(n for who, n, _ in wanted if who == "u3")]
        ]
        paused, shown = server.ksql("PAUSE CTAS_TOTALS_2; SHOW QUERIES;")
        assert paused["commandStatus"]["message"] == "Paused CTAS_TOTALS_2"
        assert {one["id"]: one["state"] for one in shown["queries"]}["CTAS_TOTALS_2"] == "PAUSED"
        dropped, _ = server.ksql("DROP TABLE totals DELETE TOPIC; DROP STREAM big DELETE TOPIC;")
        assert dropped["commandStatus"]["status"] == "SUCCESS"
        wait_until(lambda: list(ids_of(server)) == ["CTAS_SUMS_3"], SPARK_LIMIT_S)
        assert server.stop() == 0


def test_a_query_that_fails_says_why_and_stops_no_other(broker: Target, tmp_path: Path) -> None:
    """A sum that does not fit its type stops its query (`docs/sql.md`)."""
    name = unique_name("sql")
    with SqlProcess(broker.bootstrap, tmp_path / "sql", name) as server:
        server.ksql(DOMAIN.format(name))
        insert = "INSERT INTO pay (who, amt) VALUES ('a', {0});"
        server.ksql(insert.format(60))
        server.until("SELECT total FROM totals;", lambda rows: rows == [[60]])
        server.ksql(insert.format(99) * 40)

        def failed() -> bool:
            (shown,) = server.ksql("SHOW QUERIES;")
            states = {one["id"]: one for one in shown["queries"]}
            one = states["CTAS_SUMS_3"]
            return one["state"] == "ERROR" and "does not fit DECIMAL(4, 0)" in one["error"]

        wait_until(failed, SPARK_LIMIT_S)
        server.until("SELECT n FROM totals;", lambda rows: rows == [[41]])
        (described,) = server.ksql("EXPLAIN CTAS_SUMS_3;")
        assert "key ('a',)" in described["queryDescription"]["queryErrors"][0]["errorMessage"]
        server.ksql("TERMINATE CTAS_SUMS_3;")
        # Another condition, and the same operators.
        server.ksql(
            f"CREATE OR REPLACE STREAM big WITH (kafka_topic = '{name}-big') AS "
            "SELECT who, amt FROM pay WHERE amt >= 70;"
        )

        def runs_as_replaced() -> bool:
            before = server.rows("SELECT amt FROM big;")
            server.ksql(insert.format(61) + insert.format(71))
            after = server.until(
                "SELECT amt FROM big;", lambda rows: len(rows) > len(before) and rows[-1] == [71]
            )
            return [61] not in after[len(before) :]

        wait_until(runs_as_replaced, SPARK_LIMIT_S)
        server.call("POST", "/ksql/terminate", {"deleteTopicList": [f"{name}-(big|totals)", "pay"]})
        topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).topics
        assert {one for one in topics if name in one} == {f"{name}-pay", f"{name}-sums"}
        assert server.stop() == 0
