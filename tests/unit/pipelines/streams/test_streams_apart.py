"""Sub-topologies that would read their own repartition: what is sent behind it, and what cannot be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from felice.pipelines.streams.topology import TopologyError
from felice.streams import App, Context, Processor, Record, TestDriver
from streams.topologies import TOPOLOGIES

CYCLES = (
    "foreign_key_join_with_itself",
    "foreign_key_joins_with_one_table",
    "rekeyed_join_with_own_table",
    "rekeyed_join_with_source_table",
    "join_again_after_aggregate",
    "tables_join_with_own_aggregate",
    "join_with_own_aggregate",
    "merge_with_rekeyed",
    "join_with_rekeyed",
    "cogroup_with_rekeyed",
)


@pytest.mark.parametrize("name", CYCLES)
def test_each_sub_topology_reads_only_repartitions_of_those_before_it(name: str) -> None:
    app = App("line", key="string", value="string")
    TOPOLOGIES[name](app)
    written: set[str] = set()
    for part in app.topology.parts():
        read = {one.topic for one in part.sources if one.is_repartition}
        assert read <= written
        written |= {one.topic for one in part.sinks if one.is_repartition}
    assert any(topic for topic in written)


@pytest.mark.parametrize("name", [name for name in TOPOLOGIES if name not in CYCLES])
def test_other_topologies_get_no_copies(name: str) -> None:
    app = App("line", key="string", value="string")
    TOPOLOGIES[name](app)
    topics = {one.topic for part in app.topology.parts() for one in part.sources}
    assert not [topic for topic in topics if "-again-" in topic or "-copy-" in topic]


def test_a_manager_is_an_employee() -> None:
    app = App("staff")
    staff = app.table("staff")
    staff.left_join(
        staff, lambda one, boss: f"{one['name']} of {boss and boss['name']}", on="boss", value="string"
    ).to("out")
    driver = TestDriver(app)
    driver.send("staff", "1", {"name": "Ada", "boss": "2"}, 0)
    driver.send("staff", "2", {"name": "Bob", "boss": None}, 5)
    driver.send("staff", "2", None, 9)
    assert [(one.key, one.value, one.timestamp) for one in driver.read("out")] == [
        ("1", "Ada of None", 0),
        ("1", "Ada of Bob", 5),
        ("2", "Bob of None", 5),
        ("1", "Ada of None", 9),
        ("2", None, 9),
    ]


class Looks(Processor):
    def init(self, context: Context) -> None:
        self.rows = context.store("rows")

    def process(self, record: Record) -> Record:
        return record


def processor_with_own_table(app: App) -> None:
    stream = app.stream("a")
    stream.to_table(name="rows")
    stream.key_by(lambda key, value: value).process(Looks, stores=["rows"]).to("out")


def versioned_table(app: App) -> None:
    table = app.table("t", history_ms=10)
    table.to_stream().key_by(lambda key, value: value).join(table, lambda one, other: one).to("out")


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (
            processor_with_own_table,
            r"stores are used by several of its operators: 'rows' \(table-\d+, process",
        ),
        (versioned_table, "is a versioned table that comes before .* write the table to a topic"),
    ],
)
def test_what_cannot_be_sent_behind_names_a_way_out(build: Callable[[App], None], error: str) -> None:
    app = App("refused", value="string")
    with pytest.raises(TopologyError, match=error):
        build(app)
        app.topology.parts()
