"""The catalogue and queries that commands make, and the commands as records."""

from __future__ import annotations

import json

import pytest

from felice.client.group.election import Assignment
from felice.pipelines.sql.analysis.properties import FORMAT_OF, OF_CATALOGUE, START, TOPIC_PREFIX, WRAPPING
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.rows import FormatDescription
from felice.pipelines.sql.rows.registry import MemoryRegistry
from felice.pipelines.sql.server.cluster import KnownTopics, Topic
from felice.pipelines.sql.server.commands import Command, DamagedCommand
from felice.pipelines.sql.server.engine import Engine, Read
from felice.pipelines.sql.server.facts import Facts, Noted, Remembered
from felice.pipelines.sql.server.leadership import Leadership, assign, member
from felice.pipelines.sql.settings import is_known
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.scripts import statements_of
from felice.pipelines.sql.types import INTEGER, STRING, Decimal, Struct

AVRO_ROW = '{"type": "record", "name": "Row", "fields": [{"name": "A", "type": ["null", "int"]}]}'


def applied(engine: Engine, command: Command) -> None:
    engine.apply(command, engine.read(command))


class World:
    """An engine beside a cluster whose topics and schemas may change."""

    def __init__(self) -> None:
        self.registry = MemoryRegistry()
        self.topics = {"s": Topic("s", 3, 1)}
        self.engine = self.new_engine()
        self.records: list[tuple[bytes, bytes]] = []

    def new_engine(self) -> Engine:
        return Engine(built_in(), {"auto.offset.reset": "latest"}, self.registry)

    def run(self, text: str, **settings: str) -> str:
        """Analyse a statement, keep it as a command, and apply it."""
        (written,) = statements_of(text, {})
        noted = Noted(KnownTopics(self.topics, self.registry, self.registry))
        change = self.engine.change(written.statement, written.text, settings, noted)
        assert change is not None
        command = Command("stream/`X`/create", self.engine.commands, written.text, settings, noted.facts)
        self.records.append(command.encode())
        applied(self.engine, Command.decode(*self.records[-1]))
        return change.message


STREAM = "CREATE STREAM s (k STRING KEY, v INT) WITH (kafka_topic='s', value_format='JSON');"


def test_replay_makes_the_same_catalogue_though_the_world_has_changed() -> None:
    world = World()
    world.registry.register("a-value", "AVRO", AVRO_ROW)
    world.topics["a"] = Topic("a", 2, 1)
    world.run(STREAM)
    world.run("CREATE STREAM a WITH (kafka_topic='a', value_format='AVRO');")
    world.run("CREATE TYPE point AS STRUCT<x INT, y DECIMAL(4, 2)>;")
    world.run(
        "CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;", **{"auto.offset.reset": "earliest"}
    )
    world.run("CREATE STREAM gone AS SELECT * FROM s;")
    world.run("PAUSE CTAS_T_3;")
    world.run("DROP STREAM gone;")
    world.topics.clear()
    other = Engine(built_in(), {"auto.offset.reset": "latest"}, MemoryRegistry())
    for key, value in world.records:
        applied(other, Command.decode(key, value))
    assert other.catalogue == world.engine.catalogue
    assert other.catalogue.sources["A"].value == (("A", INTEGER),)
    assert other.catalogue.sources["T"].partitions == 3
    assert {id: held.is_paused for id, held in other.queries.items()} == {"CTAS_T_3": True}
    assert other.queries["CTAS_T_3"].settings["auto.offset.reset"] == "earliest"
    assert other.commands == len(world.records)
    assert other.app(other.queries["CTAS_T_3"]).topology.describe()


CHANGED = {
    FORMAT_OF["KEY"]: "JSON",
    FORMAT_OF["VALUE"]: "DELIMITED",
    WRAPPING: "false",
    TOPIC_PREFIX: "new_",
}
STATEMENTS = (
    "CREATE STREAM s (k STRING KEY, v INT) WITH (kafka_topic='s');",
    "CREATE STREAM one AS SELECT k, v FROM s PARTITION BY k;",
    "CREATE TABLE n AS SELECT v, COUNT(*) AS n FROM s GROUP BY v;",
)


def test_replay_makes_the_same_catalogue_though_the_settings_of_the_server_have_changed() -> None:
    """A restart had turned streams from JSON into DELIMITED, and renamed topics."""
    world = World()
    world.engine.settings |= {FORMAT_OF["VALUE"]: "JSON", "ksql.functions.collect_set.limit": "7"}
    for text in STATEMENTS:
        world.run(text)
    other = Engine(built_in(), {"auto.offset.reset": "earliest", **CHANGED}, MemoryRegistry())
    for record in world.records:
        applied(other, Command.decode(*record))
    assert other.catalogue == world.engine.catalogue
    assert other.catalogue.sources["ONE"].topic == "ONE"
    assert other.catalogue.sources["S"].value_format.name == "JSON"
    # Those of a query's operation are today's.
    assert other.queries["CTAS_N_2"].settings["auto.offset.reset"] == "earliest"
    assert "ksql.functions.collect_set.limit" not in other.queries["CTAS_N_2"].settings


def test_a_setting_of_a_statement_counts_more_than_that_of_the_server_then() -> None:
    world = World()
    world.engine.settings[FORMAT_OF["VALUE"]] = "DELIMITED"
    world.run(STATEMENTS[0], **{FORMAT_OF["VALUE"]: "JSON"})
    other = world.new_engine()
    applied(other, Command.decode(*world.records[0]))
    assert other.catalogue.sources["S"].value_format.name == "JSON"


def test_a_command_of_an_older_server_is_read_with_the_settings_of_today() -> None:
    facts = Facts.of({"partitions": {"s": 3}, "schemas": {}})
    assert facts.settings is None
    engine = Engine(built_in(), CHANGED, MemoryRegistry())
    applied(engine, Command("stream/`S`/create", 0, STATEMENTS[0], {}, facts))
    assert engine.catalogue.sources["S"].value_format.name == "DELIMITED"


def test_pause_resume_and_terminate() -> None:
    world = World()
    world.run(STREAM)
    world.run("CREATE STREAM r AS SELECT * FROM s;")
    assert world.run("PAUSE ALL;") == "Paused CSAS_R_1"
    assert world.run("RESUME CSAS_R_1;") == "Resumed CSAS_R_1"
    assert not world.engine.queries["CSAS_R_1"].is_paused
    assert world.run("TERMINATE CSAS_R_1;") == "Terminated CSAS_R_1"
    assert not world.engine.queries
    with pytest.raises(SqlError, match="there is no query CSAS_R_1"):
        world.run("PAUSE CSAS_R_1;")


@pytest.mark.parametrize(
    ("window", "retention_ms"),
    [
        ("", None),
        ("WINDOW TUMBLING (SIZE 1 HOUR)", 86_400_000),
        ("WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 1 MINUTE)", 3_660_000),
        ("WINDOW TUMBLING (SIZE 1 HOUR, RETENTION 2 DAYS, GRACE PERIOD 1 MINUTE)", 172_800_000),
    ],
)
def test_how_long_windows_stay(window: str, retention_ms: int | None) -> None:
    world = World()
    world.run(STREAM)
    world.run(f"CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM s {window} GROUP BY k;")
    assert world.engine.retention_ms(world.engine.catalogue.sources["T"]) == retention_ms
    assert list(world.engine.running_apps()) == ["CTAS_T_1"]
    assert world.engine.running_apps()["CTAS_T_1"] is world.engine.running_apps()["CTAS_T_1"]


def test_a_number_of_a_query_is_never_used_again() -> None:
    """Or the new query would find the old one's state."""
    world = World()
    world.run(STREAM)
    world.run("CREATE STREAM r AS SELECT * FROM s;")
    world.run("DROP STREAM r;")
    assert world.run("CREATE STREAM r AS SELECT * FROM s;") == "Created query with ID CSAS_R_3"


def test_what_was_analysed_and_built_is_used_when_the_command_comes_back() -> None:
    """Neither is done on the event loop."""
    world = World()
    world.run(STREAM)
    (written,) = statements_of("CREATE STREAM r AS SELECT * FROM s;", {})
    noted = Noted(KnownTopics(world.topics, world.registry, world.registry))
    change = world.engine.change(written.statement, written.text, {}, noted)
    assert change is not None
    assert change.started is not None
    built = world.engine._prepared[change.started.id].app
    command = Command("stream/`R`/create", world.engine.commands, written.text, {}, noted.facts)
    world.engine.apply(command, Read(written.statement, written.text, change))
    assert world.engine.queries[change.started.id].query is change.started
    assert world.engine.running_apps() == {change.started.id: built}


def test_commands_have_keys_of_their_own() -> None:
    """Compaction must not remove one."""
    world = World()
    for _ in range(3):
        world.run(STREAM)
        world.run("DROP STREAM s;")
    keys = [key for key, _ in world.records]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b"{}", "no key"),
        (b"{}", None, "no value"),
        (b"{}", b"{}", "KeyError"),
        (b"nonsense", b"{}", "JSONDecodeError"),
        (b"[]", b"[]", "TypeError"),
        (b"{}", b'{"version": 2}', "a newer server wrote it"),
        (
            b'{"id": "x", "number": 1}',
            b'{"version": 1, "statement": "", "settings": [], "facts": {}}',
            "Attribute",
        ),
        (
            b'{"id": "x", "number": 1}',
            b'{"version": 1, "statement": "", "settings": {},'
            b' "facts": {"partitions": {}, "schemas": {"a": [["A", "NO TYPE"]]}}}',
            "SqlError",
        ),
    ],
)
def test_records_that_are_no_commands(key: bytes | None, value: bytes | None, reason: str) -> None:
    with pytest.raises(DamagedCommand, match=reason):
        Command.decode(key, value)


def test_facts_are_kept_as_json() -> None:
    columns = (("A", Struct((("x y", INTEGER), ("B", Decimal(4, 2))))), ("C", STRING))
    for settings in (None, {}, {WRAPPING: "false"}):
        facts = Facts({"s": 3, "none": None}, {"s-value:": columns, "s-key:7": None}, settings)
        assert Facts.of(json.loads(json.dumps(facts.document()))) == facts


def test_a_schema_that_was_not_asked_for_is_not_guessed() -> None:
    with pytest.raises(ValueError, match="kept without the schema of s-value"):
        Remembered(Facts()).schema("s", False, FormatDescription("AVRO"))


def told(members: dict[str, bytes]) -> dict[str, tuple[str, bool, bool]]:
    """What each member is told: the leader's address, whether it leads, whether another one has its address."""
    found = {id: json.loads(one) for id, one in assign(members).items()}
    return {id: (one["leader"], one["leads"], one["shared"]) for id, one in found.items()}


def test_the_leader_stays() -> None:
    """Though a server with a smaller address comes."""
    members = {"1": member("http://b", 1, leads=True), "2": member("http://a", 2, leads=False)}
    assert told(members) == {"1": ("http://b", True, False), "2": ("http://b", False, False)}
    members["1"] = member("http://b", 1, leads=False)
    assert told(members) == {"1": ("http://a", False, False), "2": ("http://a", True, False)}


def test_of_two_servers_with_one_address_one_leads() -> None:
    """Both believed that they lead. The newer one does: it may be the older one after a kill and a start."""
    members = {"1": member("http://a", 1, leads=True), "2": member("http://a", 2, leads=False)}
    assert told(members) == {"1": ("http://a", False, True), "2": ("http://a", True, True)}
    members = {"1": member("http://a", 1, leads=False), "2": member("http://a", 2, leads=True)}
    assert told(members) == {"1": ("http://a", False, True), "2": ("http://a", True, True)}
    members["3"] = member("http://b", 3, leads=False)
    assert told(members)["3"] == ("http://a", False, False)


def test_a_server_gives_its_role_to_a_newer_one_with_its_address(caplog: pytest.LogCaptureFixture) -> None:
    roles: list[str] = []
    config = {"bootstrap.servers": "127.0.0.1:1"}
    one = Leadership(config, "g", "http://a", lambda: roles.append("lead"), lambda: roles.append("follow"))
    older, newer = member("http://a", 1, leads=False), member("http://a", 2, leads=False)
    for members in ({"1": older}, {"1": older, "2": newer}, {"1": older, "2": newer}):
        one._on_assigned(Assignment(assign(members)["1"], "1", 1))
    assert (roles, one.is_mine, one.is_shared) == (["lead", "follow"], False, True)
    assert [record.getMessage() for record in caplog.records].count(
        "another server has this address; give each one its own"
    ) == 1
    one._on_assigned(Assignment(b'{"leader": "http://a"}', "1", 1))  # of an older version
    assert (roles[2:], one.is_mine, one.is_shared) == (["lead"], True, False)


def test_each_setting_that_a_statement_looks_at_may_be_set() -> None:
    """`ksql.persistence.wrap.single.values` was looked at, and refused."""
    for name in (*OF_CATALOGUE, START):
        assert is_known(name), name


SOURCES = (
    "CREATE STREAM s (k STRING KEY, a INT, b INT) WITH (kafka_topic='s', value_format='JSON', partitions=3);",
    "CREATE TABLE t (id STRING PRIMARY KEY, x INT, y INT) WITH (kafka_topic='t', value_format='JSON', partitions=3);",
)
JOINED = "STREAM j AS SELECT s.k, s.a, t.x {0} FROM s LEFT JOIN t ON s.k = t.id"
SUMS = "TABLE n AS SELECT k, SUM(a) AS total {0} FROM s {1} GROUP BY k"

OF_TABLE = "TABLE r AS SELECT id, {0} FROM t"
GROUPED = "TABLE n AS SELECT y, COUNT(*) AS n FROM t WHERE {0} GROUP BY y"


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (SUMS.format("", ""), SUMS.format(", MAX(a) AS m", ""), "the aggregate functions"),
        (SUMS.format("", ""), SUMS.format("", "") + " HAVING SUM(a) > 1", "HAVING"),
        (SUMS.format("", ""), SUMS.format(", SUM(a) + 1 AS more", "WHERE b > 1"), None),
        (SUMS.format("", "") + " HAVING SUM(a) > 1", SUMS.format("", "") + " HAVING SUM(a) > 2", "HAVING"),
        (
            SUMS.format("", "") + " HAVING SUM(a) > 1",
            SUMS.format(", SUM(a) + 1 AS m", "") + " HAVING SUM(a) > 1",
            None,
        ),
        (JOINED.format(""), JOINED.format(", t.y"), "the columns that are read from the joined sources"),
        (JOINED.format(""), JOINED.format("").replace("LEFT ", ""), "the joins"),
        (JOINED.format(""), JOINED.format(", t.x + 1 AS more") + " WHERE s.a > 1", None),
        ("STREAM o AS SELECT k, a FROM s", "STREAM o AS SELECT k, a, b FROM s WHERE b > 1", None),
        # A table with the time of its rows keeps only the columns that are used.
        (
            GROUPED.format("x > 0 AND ROWTIME > 0"),
            GROUPED.format("y > 0 AND ROWTIME > 0"),
            "WHERE of a table",
        ),
        (
            OF_TABLE.format("x") + " WHERE ROWTIME > 0",
            OF_TABLE.format("x") + " WHERE ROWTIME > 0 AND x > 0",
            "WHERE of a table",
        ),
        (
            OF_TABLE.format("x") + " WHERE ROWTIME > 0",
            OF_TABLE.format("x, y") + " WHERE ROWTIME > 0",
            "the columns that are read from the table",
        ),
        (OF_TABLE.format("x") + " WHERE x > 0", OF_TABLE.format("x, y") + " WHERE x > 0", None),
        (OF_TABLE.format("x, ROWTIME AS moment"), OF_TABLE.format("x, ROWTIME AS moment, y"), None),
        # Without WHERE before, the result has rows that it would not delete.
        (OF_TABLE.format("x"), OF_TABLE.format("x") + " WHERE x > 1", "WHERE of a table"),
        (OF_TABLE.format("x") + " WHERE x > 1", OF_TABLE.format("x"), "WHERE of a table"),
        (
            OF_TABLE.format("x") + " WHERE x > 1",
            OF_TABLE.format("x") + " WHERE x > 1 AND y > 3",
            "WHERE of a table",
        ),
    ],
)
def test_a_replaced_query_must_be_able_to_read_its_state(before: str, after: str, what: str | None) -> None:
    """With MAX added, a query had accepted the statement and then failed with each record."""
    world = World()
    for text in (*SOURCES, f"CREATE {before};"):
        world.run(text)
    if what is None:
        world.run(f"CREATE OR REPLACE {after};")
        return
    with pytest.raises(SqlError, match=f"{what} cannot change"):
        world.run(f"CREATE OR REPLACE {after};")


@pytest.mark.parametrize(("format_", "is_refused"), [("DELIMITED", True), ("JSON", False)])
def test_a_replaced_query_must_be_able_to_read_the_rows_of_its_table(format_: str, is_refused: bool) -> None:
    """A row of DELIMITED that was kept before the table got a column cannot be read with it."""
    world = World()
    table = f"TABLE t (k STRING PRIMARY KEY, x INT {{}}) WITH (kafka_topic='t', value_format='{format_}', partitions=3)"
    query = "TABLE r AS SELECT k, x {} FROM t WHERE x > 0"
    world.run(f"CREATE {table.format('')};")
    world.run(f"CREATE {query.format('')};")
    world.run(f"CREATE OR REPLACE {table.format(', y INT')};")
    if not is_refused:
        world.run(f"CREATE OR REPLACE {query.format(', y')};")
        return
    with pytest.raises(SqlError, match="the columns that are read from the table cannot change"):
        world.run(f"CREATE OR REPLACE {query.format(', y')};")


def test_a_replacement_that_an_older_server_accepted_is_done_again() -> None:
    """Or a server that starts again would go back to the former version of the query."""
    world = World()
    for text in (*SOURCES, f"CREATE {OF_TABLE.format('x')};"):
        world.run(text)
    statement = f"CREATE OR REPLACE {OF_TABLE.format('x')} WHERE x > 1"
    applied(world.engine, Command("table/`R`/create", 3, statement, {}, Facts({"t": 3, "R": 3})))
    assert world.engine.queries["CTAS_R_2"].query.plan.where is not None


def test_a_drop_that_an_older_server_accepted_is_done_again() -> None:
    """A source of another one is not dropped any longer; what a topic has stays in force."""
    world = World()
    world.run(STREAM)
    world.run("CREATE STREAM r AS SELECT * FROM s;")
    world.run("TERMINATE CSAS_R_1;")
    with pytest.raises(SqlError, match=r"Cannot drop S. The following .* read from this source: \[R\]"):
        world.run("DROP STREAM s;")
    applied(world.engine, Command("stream/`S`/drop", 3, "DROP STREAM s", {}, Facts()))
    assert list(world.engine.catalogue.sources) == ["R"]
