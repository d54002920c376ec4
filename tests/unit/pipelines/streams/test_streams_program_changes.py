"""A new version of a program: which state it keeps, which begins anew, and what is refused."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.streams.on_spark import changes
from felice.pipelines.streams.on_spark.changes import (
    DROPPED,
    KEPT,
    NEW,
    Change,
    Choices,
    layout_of,
    make,
    of_program,
    planned,
)
from felice.pipelines.streams.on_spark.directory import Checkpoint, CheckpointError, Description
from felice.pipelines.streams.on_spark.spark_logs import SparkLogs
from felice.pipelines.streams.on_spark.state import StateFiles
from felice.pipelines.streams.stores import Clocks, Store
from felice.pipelines.streams.topology import CLOCKS
from felice.streams import (
    App,
    Context,
    JoinWindows,
    KeyValues,
    Processor,
    Record,
    SessionWindows,
    Stream,
    Table,
    cogroup,
)
from streams.tasks_in_memory import TasksInMemory, by_topic

PLACES, DONE = 2, 7
Row = tuple[str, str, str | None, int]
Piece = Callable[[App, Stream, Table], None]


class Latest(Processor):
    def init(self, context: Context) -> None:
        self._store = context.store("latest")
        context.schedule(50, self._tell)

    def process(self, record: Record) -> Iterable[Record]:
        self._store.put(record.key, record.value, record.timestamp)
        return ()

    def _tell(self, time: int) -> Iterable[Record]:
        return [Record(key, row.value, time, ()) for key, row in self._store.items()]


def plus(one: Any, other: Any) -> str:
    return f"{one}+{other}"


def concat(key: Any, value: Any, so_far: Any) -> str:
    return f"{so_far}{value}"


def count(app: App, orders: Stream, users: Table) -> None:
    orders.group_by(lambda key, value: value[0]).count().to("counts")


def windows(app: App, orders: Stream, users: Table) -> None:
    orders.group_by_key().hopping(60, every_ms=20, grace_ms=10).count().to("windows")


def final(app: App, orders: Stream, users: Table) -> None:
    orders.group_by_key().tumbling(30).emit("final").reduce(plus).to("final")


def sessions(app: App, orders: Stream, users: Table) -> None:
    orders.group_by_key().session(20).reduce(plus).to("sessions")


def sliding(app: App, orders: Stream, users: Table) -> None:
    orders.group_by_key().sliding(25, grace_ms=5).count().to("sliding")


def joined(app: App, orders: Stream, users: Table) -> None:
    orders.left_join(users, plus).to("joined")


def regions(app: App, orders: Stream, users: Table) -> None:
    users.group_by(lambda key, value: (value[0], value)).aggregate(
        lambda: "", concat, lambda key, value, so_far: so_far.replace(value, "", 1)
    ).to("regions")


def streams_joined(app: App, orders: Stream, users: Table) -> None:
    orders.outer_join(app.stream("returns"), plus, within=JoinWindows(20, 20, 5)).to("both")


def foreign(app: App, orders: Stream, users: Table) -> None:
    users.left_join(app.table("owners"), plus, on=lambda key, value: f"k{value[-1]}").to("owned")


def first(app: App, orders: Stream, users: Table) -> None:
    orders.dedupe(lambda key, value: value, within_ms=40).to("first")


def changed(app: App, orders: Stream, users: Table) -> None:
    orders.dedupe_changes().to("changed")


def held(app: App, orders: Stream, users: Table) -> None:
    orders.group_by_key().count().suppress(30).to("held")


def processed(app: App, orders: Stream, users: Table) -> None:
    orders.process(Latest, stores=[KeyValues("latest")]).to("processed")


def together(app: App, orders: Stream, users: Table) -> None:
    returns = app.stream("returned").group_by_key()
    inputs = [(orders.group_by_key(), concat), (returns, concat)]
    cogroup(inputs, lambda: "", windows=SessionWindows(15), merger=lambda key, a, b: plus(a, b)).to(
        "together"
    )


PIECES: list[Piece] = [
    count,
    windows,
    final,
    sessions,
    sliding,
    joined,
    regions,
    streams_joined,
    foreign,
    first,
    changed,
    held,
    processed,
    together,
]
TOPICS = ("orders", "users", "returns", "owners", "returned")


def program(pieces: Iterable[Piece], *before: Piece, peeks: bool = False) -> App:
    app = App("shop", value="string")
    orders = app.stream("orders")
    orders = orders.peek(lambda key, value: None) if peeks else orders
    users = app.table("users")
    for one in (*before, *pieces):
        one(app, orders, users)
    return app


def another_output(app: App, orders: Stream, users: Table) -> None:
    orders.to("copy")


def a_branch(app: App, orders: Stream, users: Table) -> None:
    orders.branch({"short": lambda key, value: len(value) < 2}, default="rest")["short"].to("short")


def another_aggregation(app: App, orders: Stream, users: Table) -> None:
    orders.group_by(lambda key, value: value[-1]).count().to("last")


EDITS: dict[str, Callable[[Piece], App]] = {
    "peek": lambda piece: program([piece], peeks=True),
    "output": lambda piece: program([piece], another_output),
    "branch": lambda piece: program([piece], a_branch),
    "aggregation before": lambda piece: program([piece], another_aggregation),
    "aggregation behind": lambda piece: program([piece, another_aggregation]),
    "other pieces before": lambda piece: program([piece], *[one for one in PIECES if one is not piece]),
}


class Tasks(TasksInMemory):
    """The tasks of an App, with a checkpoint after the batch `DONE`."""

    def __init__(self, app: App) -> None:
        super().__init__(app, PLACES)

    def written(self, rows: Iterable[Row]) -> dict[str, list[Any]]:
        """What the App writes to each topic."""
        return by_topic(self.run(rows))

    def keep(self, checkpoint: Checkpoint) -> None:
        """Write the state and describe it."""
        description = described(self.app)
        self.save(checkpoint, description, DONE)
        checkpoint.describe(description)
        finish(checkpoint)


def described(app: App) -> Description:
    return Description(app.name, partitions=PLACES, starting={}, **of_program(app.topology))


def finish(checkpoint: Checkpoint) -> None:
    for name in ("offsets", "commits"):
        (checkpoint.path / name).mkdir(exist_ok=True, parents=True)
        (checkpoint.path / name / str(DONE)).write_text('v1\n{}\n{"orders": {"0": 9}, "users": {"0": 4}}')


def nothing_filled(*args: Any) -> list[Store]:
    raise AssertionError(f"no table is filled here: {args}")


def rows_of(seed: int, count: int = 150) -> list[Row]:
    dice, time, rows = Random(seed), 1000, list[Row]()
    for _ in range(count):
        time += dice.randrange(8)
        value = None if dice.random() < 0.1 else f"{dice.choice('ab')}{dice.randrange(4)}"
        topic = dice.choice(TOPICS)
        if topic == "orders" and value is None:
            value = "b1"
        rows.append((topic, f"k{dice.randrange(4)}", value, max(1, time - dice.choice((0, 0, 0, 30)))))
    return rows


def change_of(
    before: App, after: App, checkpoint: Checkpoint, choices: Choices = changes.NO_CHOICES
) -> Change:
    Tasks(before).keep(checkpoint)
    change = planned(after.scope, checkpoint, choices)
    assert change is not None
    return change


def fates(change: Change) -> dict[str, str]:
    return {one.store: one.what for one in change.fates}


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.__name__)
@pytest.mark.parametrize("edit", EDITS)
def test_a_version_with_more_steps_continues_as_if_it_had_always_run(
    piece: Piece, edit: str, tmp_path: Path
) -> None:
    before, after, checkpoint = program([piece]), EDITS[edit](piece), Checkpoint(tmp_path)
    # Timers follow the time of the task: it would be another one if a join brings the users into it.
    topics = ["orders"] if piece is processed else before.topology.topics()
    rows = [row for row in rows_of(len(edit)) if row[0] in topics]
    half = len(rows) // 2
    running = Tasks(before)
    running.run(rows[:half])
    running.keep(checkpoint)
    change = planned(after.scope, checkpoint)
    assert change is not None
    stores = {one.name for part in change.before.parts or () for one in part.stores}
    assert len([one for one in change.fates if one.what == KEPT]) == len(stores)
    make(after.scope, checkpoint, replace(change, filled={}), nothing_filled)
    continued, undisturbed = Tasks(after), Tasks(program([piece]))
    continued.load(checkpoint, DONE)
    undisturbed.run(rows[:half])
    written = continued.written(rows[half:])
    for topic, records in undisturbed.written(rows[half:]).items():
        assert written[topic] == records, topic


def test_lines_in_another_order_keep_all_state(tmp_path: Path) -> None:
    def other_count(app: App, orders: Stream, users: Table) -> None:
        orders.group_by(lambda key, value: value[1]).count().to("others")

    pieces = [*PIECES, other_count]
    before, after, checkpoint = program(pieces), program(reversed(pieces)), Checkpoint(tmp_path)
    rows = rows_of(3, 400)
    running = Tasks(before)
    running.run(rows[:200])
    running.keep(checkpoint)
    change = planned(after.scope, checkpoint)
    assert change is not None and set(fates(change).values()) == {KEPT}
    make(after.scope, checkpoint, change, nothing_filled)
    continued = Tasks(after)
    continued.load(checkpoint, DONE)
    written = continued.written(rows[200:])
    for topic, records in running.written(rows[200:]).items():
        # Sub-topologies, and the tasks of a key, may take turns differently.
        assert sorted(map(repr, written[topic])) == sorted(map(repr, records)), topic


def test_a_sub_topology_with_the_same_stores_keeps_its_files(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    change = change_of(program([count]), program([count], another_output, peeks=True), checkpoint)
    assert not change.rewritten and not change.is_seen
    files = {path: path.read_bytes() for path in tmp_path.rglob("*.base")}
    make(program([count], another_output, peeks=True).scope, checkpoint, change, nothing_filled)
    assert files and {path: path.read_bytes() for path in tmp_path.rglob("*.base")} == files


def named(value: str = "json", size_ms: int = 60) -> App:
    app = App("shop", value="string")
    grouped = app.stream("orders").group_by_key()
    grouped.aggregate(lambda: "", concat, name="texts", value=value).to("texts")
    grouped.tumbling(size_ms).count(name="windows").to("windows")
    return app


@pytest.mark.parametrize(
    ("after", "anew", "why"),
    [
        (
            named("string"),
            "texts",
            "changed from KeyValueStore of string, json to KeyValueStore of string, string",
        ),
        (named(size_ms=70), "windows", "WindowStore of string, json, 60 ms"),
    ],
)
def test_other_formats_and_windows_begin_anew(after: App, anew: str, why: str, tmp_path: Path) -> None:
    change = change_of(named(), after, Checkpoint(tmp_path))
    found = {one.store: one for one in change.fates if one.what == NEW}
    assert list(found) == [anew] and why in found[anew].why
    assert [one.store for one in change.fates if one.what == DROPPED] == [anew]
    assert any(anew in line and "begins empty" in line for line in change.lines())


def counting(*functions: Callable[[Any, Any], Any], names: tuple[str | None, ...] = ()) -> App:
    app = App("shop", value="string")
    for number, function in enumerate(functions):
        name = names[number] if names else None
        app.stream("orders" if not number else f"orders{number}").group_by(function).count(name=name).to(
            "out"
        )
    return app


def twice(one: Callable[[Any, Any], Any], *others: Callable[[Any, Any], Any], name: str | None = None) -> App:
    app = App("shop", value="string")
    orders = app.stream("orders")
    for function in (one, *others):
        orders.group_by(function).count(name=name if function is one else None).to("out")
    return app


def test_a_store_without_name_is_found_by_its_functions_or_as_the_only_one(tmp_path: Path) -> None:
    by_value, by_end, by_key = (
        (lambda key, value: value),
        (lambda key, value: value[-1]),
        (lambda key, value: key),
    )
    change = change_of(twice(by_value, by_end), twice(by_end, by_value), Checkpoint(tmp_path / "a"))
    assert change.matched == {"aggregate-1": "aggregate-2", "aggregate-2": "aggregate-1"}
    change = change_of(twice(by_value, by_end), twice(by_key, by_value), Checkpoint(tmp_path / "b"))
    assert change.matched == {"aggregate-2": "aggregate-1", "aggregate-1": "aggregate-2"}
    change = change_of(twice(by_value), twice(by_end, name="ends"), Checkpoint(tmp_path / "c"))
    assert fates(change) == {"ends": NEW, "aggregate-1": DROPPED}
    change = change_of(twice(by_value), twice(by_value, name="values"), Checkpoint(tmp_path / "d"))
    assert change.matched == {"values": "aggregate-1"}


def test_what_is_not_certain_is_asked(tmp_path: Path) -> None:
    by_value, by_end, by_key = (
        (lambda key, value: value),
        (lambda key, value: value[-1]),
        (lambda key, value: key),
    )
    before, after = twice(by_value), twice(by_end, by_key)
    with pytest.raises(
        CheckpointError, match="aggregate-1, and the program aggregate-1, aggregate-2. .*--keep OLD=NEW"
    ):
        change_of(before, after, Checkpoint(tmp_path))
    change = change_of(before, after, Checkpoint(tmp_path), Choices({"aggregate-1": "aggregate-2"}))
    assert fates(change) == {"aggregate-1": NEW, "aggregate-2": KEPT}
    change = change_of(before, after, Checkpoint(tmp_path), Choices(drop=("aggregate-1",)))
    assert list(fates(change).values()) == [NEW, NEW, DROPPED] or fates(change)["aggregate-1"] == DROPPED
    for choices, told in (
        (Choices({"x": "aggregate-2"}), "the state has no store 'x' to keep; there are: aggregate-1"),
        (Choices({"aggregate-1": "y"}), "the program has no store 'y'"),
        (Choices(drop=("z",)), "stores without names are ambiguous"),
    ):
        with pytest.raises(CheckpointError, match=told):
            change_of(before, after, Checkpoint(tmp_path), choices)


def test_what_is_computed_from_a_table_that_begins_anew_begins_anew(tmp_path: Path) -> None:
    def shop(value: str) -> App:
        app = App("shop", value="string")
        texts = app.stream("orders").group_by_key().aggregate(lambda: "", concat, name="texts", value=value)
        texts.group_by(lambda key, text: (text[:1], text)).count(name="starts").to("starts")
        texts.to_stream().group_by_key().count(name="updates").to("updates")
        return app

    change = change_of(shop("json"), shop("string"), Checkpoint(tmp_path))
    assert fates(change) | {"updates": KEPT} == {"texts": DROPPED, "starts": DROPPED, "updates": KEPT}
    found = {one.store: one.why for one in change.fates if one.what == NEW}
    assert found.keys() == {"texts", "starts"} and "computed from texts" in found["starts"]


def test_the_new_store_of_a_table_is_filled_from_its_topic(tmp_path: Path) -> None:
    def without(app: App, orders: Stream, users: Table) -> None:
        users.to("users-copy")

    before, after, checkpoint = program([without]), program([without, joined]), Checkpoint(tmp_path)
    Tasks(before).keep(checkpoint)
    change = planned(after.scope, checkpoint)
    assert change is not None and fates(change) == {"table-1-store": NEW}
    assert [one.why for one in change.fates] == ["filled from topic users"]
    asked = []

    def fill(topology: Any, store: str, topic: Any, partitions: int) -> list[Store]:
        asked.append((store, topic.topic, partitions))
        made = [
            topology.made_stores(part)[store] for part in topology.parts() if store in part.stores
        ] * PLACES
        made[0].put("k1", "anna", 5)
        return [made[0]] * PLACES

    make(after.scope, checkpoint, change, fill)
    assert asked == [("table-1-store", "users", PLACES)]
    continued = Tasks(after)
    continued.load(checkpoint, DONE)
    [record] = continued.written([("orders", "k1", "book", 9)])["joined"]
    assert record.value == b"book+anna"


def test_topics_come_and_go_and_new_ones_are_read_from_their_beginning(tmp_path: Path) -> None:
    change = change_of(program([streams_joined]), program([together]), Checkpoint(tmp_path))
    assert (change.added, change.removed) == ({"returned": "read from its beginning"}, ("returns",))
    assert any("topic returned" in line and "from its beginning" in line for line in change.lines())


def test_a_copy_of_a_table_that_would_be_empty_is_refused(tmp_path: Path) -> None:
    def own(app: App, orders: Stream, users: Table) -> None:
        users.join(users, plus, on=lambda key, value: f"k{value[-1]}").to("owned")

    with pytest.raises(CheckpointError, match="needs a copy of a table"):
        change_of(program([joined]), program([joined, own]), Checkpoint(tmp_path))


def test_a_crash_before_the_description_is_replaced_leaves_the_earlier_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, before, after = Checkpoint(tmp_path), program([count, joined]), program([joined, windows])
    running = Tasks(before)
    rows = rows_of(1)
    running.run(rows)
    running.keep(checkpoint)
    change = planned(after.scope, checkpoint)
    assert change is not None and change.rewritten

    def crash(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Checkpoint, "describe", crash)
        make(after.scope, checkpoint, change, nothing_filled)
    again = Tasks(before)
    again.load(checkpoint, DONE)
    assert again.run(rows_of(2)) == running.run(rows_of(2))
    make(after.scope, checkpoint, change, nothing_filled)
    Tasks(after).load(checkpoint, DONE)
    described_now = checkpoint.description()
    assert described_now is not None
    named_now = {part.directory for part in described_now.parts or ()}
    assert {path.name for path in Path(checkpoint.state_location(described_now)).iterdir()} == named_now


def test_a_checkpoint_of_an_earlier_release_is_read_by_its_names(tmp_path: Path) -> None:
    app, checkpoint = program(PIECES), Checkpoint(tmp_path)
    former = app.topology.former_name
    tasks = Tasks(app)
    rows = rows_of(5, 300)
    tasks.run(rows[:200])

    def named(store: Store) -> Store:
        if store.name != CLOCKS:
            return store
        clocks = Clocks(CLOCKS)
        for name, time in store.rows.items():
            head, space, what = name.partition(" ")
            clocks.set(former(head) + space + what, time)
        return clocks

    for place, parts in enumerate(tasks.tasks):
        for part, task in zip(tasks.parts, parts, strict=True):
            if part.is_placed:
                path = tmp_path / "felice-streams" / "state-0" / str(part.number) / str(place)
                StateFiles(path).write_first(
                    DONE, {former(name): named(store) for name, store in task.stores.items()}
                )
    checkpoint.describe(
        replace(described(app), topology=app.topology.former_description(), parts=None, format=2)
    )
    finish(checkpoint)
    change = planned(app.scope, checkpoint)
    assert change is not None and {one.what for one in change.fates} == {KEPT}
    make(app.scope, checkpoint, change, nothing_filled)
    continued = Tasks(program(PIECES))
    continued.load(checkpoint, DONE)
    assert continued.run(rows[200:]) == tasks.run(rows[200:])
    changed_now = checkpoint.description()
    assert changed_now is not None and changed_now.format == 3
    checkpoint.describe(replace(described(app), parts=None, format=2, topology="Sub-topology 0"))
    with pytest.raises(CheckpointError, match="run that version once with this release"):
        planned(app.scope, checkpoint)


def test_sparks_logs_follow_a_source_that_comes_or_goes(tmp_path: Path) -> None:
    logs = SparkLogs(tmp_path)
    logs.set_sources(2)
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    for number in (3, 4, 5):
        (tmp_path / "offsets" / str(number)).write_text(f'v1\n{{}}\n{{"t": {{"0": {number}}}}}')
        (tmp_path / "offsets" / f".{number}.crc").write_text("sum")
    (tmp_path / "commits" / "4").touch()
    logs.set_sources(1)
    assert (tmp_path / "offsets" / ".5.crc").exists()
    logs.set_sources(2)
    assert [(tmp_path / "offsets" / str(n)).read_text().splitlines()[3:] for n in (3, 4, 5)] == [
        [],
        ["-"],
        ["-"],
    ]
    assert not (tmp_path / "offsets" / ".5.crc").exists()
    assert logs.last_done_offsets(0) == '{"t": {"0": 4}}' and logs.last_done_offsets(1) is None
    logs.set_sources(1)
    assert len((tmp_path / "offsets" / "5").read_text().splitlines()) == 3
    with pytest.raises(CheckpointError, match="offsets of 1 sources, and the application has 3"):
        logs.set_sources(3)


class Above:
    def __init__(self, least: int) -> None:
        self.least = least

    def __call__(self, key: Any, value: Any) -> bool:
        return len(value) > self.least


def lineages(app: App) -> list[str]:
    return [one.exact for part in layout_of(app.topology) for one in part.stores]


def filtered(predicate: Callable[[Any, Any], Any]) -> App:
    app = App("shop", value="string")
    app.table("view", name="buy")
    app.stream("orders").filter(predicate).group_by_key().count().to("out")
    return app


def with_keyword(key: Any, value: Any, *, least: int = 1) -> bool:
    return len(value) > least


def with_other_keyword(key: Any, value: Any, *, least: int = 2) -> bool:
    return len(value) > least


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda key, value: value in {"a"}, lambda key, value: value in {"b"}),
        (lambda key, value: value == "view", lambda key, value: value == "buy"),
        (lambda key, value: value.upper(), lambda key, value: value.lower()),
        (lambda key, value, least=1: least, lambda key, value, least=2: least),
        (with_keyword, with_other_keyword),
        (Above(1), Above(2)),
        (Above(1).__call__, Above(2).__call__),
    ],
)
def test_functions_that_differ_have_other_lineages(one: Any, other: Any) -> None:
    assert lineages(filtered(one)) == lineages(filtered(one)) != lineages(filtered(other))


def test_a_function_that_holds_itself_has_a_lineage() -> None:
    def again(key: Any, value: Any) -> Any:
        return again if value else None

    assert lineages(filtered(again)) == lineages(filtered(again))


def test_two_changed_functions_are_not_paired_by_their_order(tmp_path: Path) -> None:
    one, two = (lambda key, value: value), (lambda key, value: value[-1])
    three, four = (lambda key, value: key), (lambda key, value: key + value)
    with pytest.raises(CheckpointError, match="stores without names are ambiguous"):
        change_of(twice(one, two), twice(three, four), Checkpoint(tmp_path / "a"))
    with pytest.raises(CheckpointError, match="stores without names are ambiguous"):
        change_of(twice(one, two), twice(three), Checkpoint(tmp_path / "b"))


def test_choices_may_be_given_again(tmp_path: Path) -> None:
    by_value, by_end, checkpoint = (
        (lambda key, value: value),
        (lambda key, value: value[-1]),
        Checkpoint(tmp_path),
    )
    after = twice(by_end, name="ends")
    choices = Choices({"aggregate-1": "ends"}, ("gone",))
    change = change_of(twice(by_value), after, checkpoint, choices)
    assert fates(change) == {"ends": KEPT}
    make(after.scope, checkpoint, change, nothing_filled)
    again = planned(after.scope, checkpoint, choices)
    assert again is not None and not again.is_needed


def test_changed_functions_alone_change_no_files(tmp_path: Path) -> None:
    change = change_of(twice(lambda key, value: value), twice(lambda key, value: key), Checkpoint(tmp_path))
    assert not change.is_needed and not change.is_seen


def test_a_named_table_with_another_format_takes_those_computed_from_it_along(tmp_path: Path) -> None:
    def shop(value: str) -> App:
        app = App("shop", value="string")
        users = app.table("users", value=value, name="users")
        users.group_by(lambda key, user: (str(user)[:1], user)).count(name="starts").to("starts")
        return app

    change = change_of(shop("json"), shop("string"), Checkpoint(tmp_path))
    found = {one.store: one.why for one in change.fates if one.what == NEW}
    assert "filled from topic users" in found["users"] and "computed from users" in found["starts"]


def test_sparks_logs_forget_topics_that_are_no_longer_read(tmp_path: Path) -> None:
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    for number in (4, 5):
        (tmp_path / "offsets" / str(number)).write_text('v1\n{}\n{"a": {"0": 1}, "b": {"0": 2}}\n-')
    (tmp_path / "commits" / "4").touch()
    logs = SparkLogs(tmp_path)
    logs.keep_topics(["a", "c"].__contains__)
    assert logs.last_done_offsets(0) == '{"a": {"0": 1}}'
    assert (tmp_path / "offsets" / "5").read_text() == 'v1\n{}\n{"a": {"0": 1}}\n-'


def test_another_release_of_python_whose_code_differs_keeps_a_program_as_it_is(tmp_path: Path) -> None:
    checkpoint, app = Checkpoint(tmp_path), twice(lambda key, value: value, lambda key, value: key)
    Tasks(app).keep(checkpoint)
    kept = checkpoint.description()
    assert kept is not None and kept.python == changes.PYTHON
    parts = tuple(
        replace(part, stores=tuple(replace(one, exact="other code") for one in part.stores))
        for part in kept.parts or ()
    )
    checkpoint.describe(replace(kept, parts=parts))
    with pytest.raises(CheckpointError, match="stores without names are ambiguous"):
        planned(app.scope, checkpoint)
    checkpoint.describe(replace(kept, parts=parts, python="3.10"))
    change = planned(app.scope, checkpoint)
    assert change is not None and not change.is_needed and change.after.python == changes.PYTHON


PROGRAM_WITH_OBJECTS = """
from felice.streams import App

class IsA:
    def __call__(self, key, value):
        return value == "a"

class IsB:
    def __call__(self, key, value):
        return value == "b"

app = App("shop", value="string")
orders = app.stream("orders")
for predicate in (IsA(), IsB()):
    orders.filter(predicate).group_by_key().count().to("out")
"""


def test_objects_without_attributes_are_told_apart_by_what_they_do(tmp_path: Path) -> None:
    """Of a file that `felice run` has run, as from a process before: its classes cannot be imported."""
    file = tmp_path / "shop.py"
    file.write_text(PROGRAM_WITH_OBJECTS)
    before, again = (runpy.run_path(str(file), run_name="felice_app")["app"] for _ in range(2))
    change = change_of(before, again, Checkpoint(tmp_path / "a"))
    assert change.matched == {"aggregate-1": "aggregate-1", "aggregate-2": "aggregate-2"}
    file.write_text(PROGRAM_WITH_OBJECTS.replace("(IsA(), IsB())", "(IsB(), IsA())"))
    swapped = runpy.run_path(str(file), run_name="felice_app")["app"]
    change = change_of(before, swapped, Checkpoint(tmp_path / "b"))
    assert change.matched == {"aggregate-1": "aggregate-2", "aggregate-2": "aggregate-1"}
