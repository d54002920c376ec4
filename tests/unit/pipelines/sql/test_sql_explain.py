"""The plans that EXPLAIN shows."""

from __future__ import annotations

from textwrap import dedent

import pytest

from felice.pipelines.sql.analysis.queries import Target, plan_of
from felice.pipelines.sql.explain import explained
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.offline.statements import Statements
from felice.pipelines.sql.offline.topics import Topics
from felice.pipelines.sql.syntax.scripts import statements_of
from felice.pipelines.sql.syntax.tree import Query

SOURCES = """
CREATE STREAM pay (id STRING KEY, card STRING, amt INT, tags ARRAY<STRING>)
  WITH (kafka_topic='pay', value_format='JSON', partitions=2);
CREATE STREAM paid (id STRING KEY, amt INT) WITH (kafka_topic='paid', value_format='JSON', partitions=2);
CREATE TABLE cust (card STRING PRIMARY KEY, town STRING)
  WITH (kafka_topic='cust', value_format='JSON', partitions=2);
CREATE TABLE towns (town STRING PRIMARY KEY, land STRING)
  WITH (kafka_topic='towns', value_format='JSON', partitions=2);
"""


@pytest.mark.parametrize(
    ("query", "plan"),
    [
        (
            "SELECT id, amt * 2 AS twice FROM pay WHERE amt > 3 EMIT CHANGES",
            """\
            SHOW: ID, AMT * 2 AS TWICE
              FILTER: AMT > 3
                SOURCE STREAM PAY: topic pay, KAFKA keys, JSON values""",
        ),
        (
            "SELECT card, COUNT(*) AS n, TOPK(amt, 3) FROM pay WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 10 MINUTES) "
            "GROUP BY card HAVING SUM(amt) > 2 EMIT CHANGES",
            """\
            SHOW: CARD, COUNT(*) AS N, TOPK(AMT, 3) AS KSQL_COL_0
              HAVING: SUM(AMT) > 2
                AGGREGATE: COUNT(*), TOPK(AMT, 3), SUM(AMT) by CARD, in HOPPING windows of 1 HOUR, one each 10 \
MINUTES, grace 23 HOURS; results are sent with each change. State: a row for each group and window, kept for 1 DAY
                  REPARTITION by CARD: rows of a group must be in one partition, and the key is ID
                    SOURCE STREAM PAY: topic pay, KAFKA keys, JSON values""",
        ),
        (
            "SELECT id, COUNT(*) FROM pay GROUP BY id EMIT CHANGES",
            """\
            SHOW: ID, COUNT(*) AS KSQL_COL_0
              AGGREGATE: COUNT(*) by ID. State: a row for each group, which stays
                SOURCE STREAM PAY: topic pay, KAFKA keys, JSON values""",
        ),
        (
            "SELECT town, COUNT(*) FROM cust GROUP BY town EMIT CHANGES",
            """\
            SHOW: TOWN, COUNT(*) AS KSQL_COL_0
              AGGREGATE: COUNT(*) by TOWN. State: a row for each group, which stays
                SUBTRACT the old row, add the new one: the source is a table. State: a row for each key of the source
                  REPARTITION by TOWN: rows of a group must be in one partition, and the key is CARD
                    SOURCE TABLE CUST: topic cust, KAFKA keys, JSON values""",
        ),
        (
            "SELECT p.card, p.amt, c.town FROM pay p LEFT JOIN cust c ON p.card = c.card EMIT CHANGES",
            """\
            SHOW: P.CARD AS P_CARD, P.AMT AS AMT, C.TOWN AS TOWN
              LEFT JOIN CUST (stream-table) on P.CARD = C.CARD: records of the stream look the row up. State: a row \
for each key of CUST
                SOURCE TABLE CUST as C: topic cust, KAFKA keys, JSON values
                REPARTITION by P.CARD: it is not the key
                  SOURCE STREAM PAY as P: topic pay, KAFKA keys, JSON values""",
        ),
        (
            "SELECT a.id, b.amt FROM pay a JOIN paid b WITHIN 5 MINUTES GRACE PERIOD 1 SECOND ON a.card = b.id "
            "EMIT CHANGES",
            """\
            SHOW: A.ID AS A_ID, B.AMT AS B_AMT
              INNER JOIN PAID (stream-stream) on A.CARD = B.ID: within 5 MINUTES before and 5 MINUTES after, grace \
1 SECOND. State: the records of both sides that can still find a partner
                SOURCE STREAM PAID as B: topic paid, KAFKA keys, JSON values
                REPARTITION by A.CARD: it is not the key
                  SOURCE STREAM PAY as A: topic pay, KAFKA keys, JSON values""",
        ),
        (
            "SELECT c.card, t.land FROM cust c JOIN towns t ON c.town = t.town EMIT CHANGES",
            """\
            SHOW: C.CARD AS CARD, T.LAND AS LAND
              INNER JOIN TOWNS (foreign-key) on C.TOWN = T.TOWN: State: a row for each key of both sides, and for each \
row on the left the key of TOWNS that it names
                SOURCE TABLE TOWNS as T: topic towns, KAFKA keys, JSON values
                SOURCE TABLE CUST as C: topic cust, KAFKA keys, JSON values""",
        ),
        (
            "SELECT amt, EXPLODE(tags) AS tag FROM pay PARTITION BY amt EMIT CHANGES",
            """\
            SHOW: AMT, EXPLODE(TAGS) AS TAG
              PARTITION BY: AMT
                EXPLODE: EXPLODE(TAGS), a row for each STRING
                  SOURCE STREAM PAY: topic pay, KAFKA keys, JSON values""",
        ),
    ],
)
def test_plans(query: str, plan: str) -> None:
    statements = Statements(built_in(), {}, Topics())
    statements.execute(SOURCES)
    (written,) = statements_of(query, {})
    assert isinstance(written.statement, Query)
    found = plan_of(written.statement, statements.catalogue, built_in(), {}, target=None)
    assert explained(found) == dedent(plan)


def test_a_plan_with_a_sink() -> None:
    statements = Statements(built_in(), {}, Topics())
    statements.execute(SOURCES + "CREATE STREAM r AS SELECT id, amt FROM paid;")
    (written,) = statements_of("SELECT id, amt FROM paid EMIT CHANGES", {})
    assert isinstance(written.statement, Query)
    plan = plan_of(written.statement, statements.catalogue, built_in(), {}, target=Target("R"))
    assert explained(plan, statements.catalogue.sources["R"]).splitlines() == [
        "SINK R: topic R, KAFKA keys, JSON values, 2 partitions",
        "  PROJECT: ID, AMT",
        "    SOURCE STREAM PAID: topic paid, KAFKA keys, JSON values",
    ]
