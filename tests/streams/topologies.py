"""The topologies of `StreamsOracle.java` in Python, by the same names. Keys and values are strings."""

from collections.abc import Callable

from felice.streams import (
    App,
    Context,
    GroupedTable,
    JoinWindows,
    KeyValues,
    Processor,
    Record,
    Rows,
    SessionedStream,
    SessionWindows,
    SlidingWindows,
    Stream,
    Table,
    TimeWindows,
    Windowed,
    WindowedStream,
    cogroup,
)

Build = Callable[[App], None]
Merger = Callable[[str, str, str], str]


def add(key: str, value: str | None, aggregate: str) -> str:
    return aggregate + _java(value)


def subtract(key: str, value: str, aggregate: str) -> str | None:
    return aggregate.replace(value, "", 1) or None


def pair(left: str | None, right: str | None) -> str:
    return f"{_java(left)}|{_java(right)}"


def _java(value: str | None) -> str:
    return "null" if value is None else value


def group(value: str | None) -> str | None:
    return None if value is None or "9" in value else f"g{int(value) % 3}"


def small(key: str, value: str | None) -> bool:
    return value is None or value < "5"


def referred(key: str, value: str) -> str | None:
    """The key of another table's row: None for the value 9."""
    return None if value == "9" else f"k{int(value) % 3 + 1}"


def group_key(value: str | None) -> str | None:
    return None if value is None else referred("", value)


def global_table_twice(app: App) -> None:
    table = app.global_table("t")
    joined = app.stream("a").join(table, pair)
    regrouped = joined.group_by(last_character_as_key).reduce(latest).to_stream()
    regrouped.left_join(table, pair, on=lambda key, value: group_key(value[0])).to("out")


def last_character_as_key(key: str, value: str) -> str:
    return value[-1]


class Sums(Processor):
    """Appends values, and sends and removes them when a timer is due."""

    def __init__(self, clock: str, interval_ms: int) -> None:
        self.clock, self.interval_ms = clock, interval_ms

    def init(self, context: Context) -> None:
        self.sums = context.store("sums")
        context.schedule(self.interval_ms, self.on_timer, clock=self.clock)

    def process(self, record: Record) -> list[Record]:
        if record.key is None:
            return []
        row = self.sums.get(record.key)
        value = ("" if row is None else row.value) + _java(record.value)
        self.sums.put(record.key, value)
        return [record._replace(value=value)]

    def on_timer(self, time: int) -> list[Record]:
        found = list(self.sums.items())
        for key, _ in found:
            self.sums.put(key, None)
        return [Record(key, f"{time}:{row.value}", time) for key, row in found]


class LookUp(Processor):
    """Looks the rows of a table's store up."""

    def init(self, context: Context) -> None:
        self.table = context.store("t")

    def process(self, record: Record) -> list[Record]:
        if record.key is None:
            return []
        row = self.table.get(record.key)
        return [record._replace(value=pair(record.value, row and row.value))]


def processor_with_table(app: App) -> None:
    app.table("t", name="t").to("ignored")
    app.stream("a").process(LookUp, stores=["t"]).to("out")


def merge(key: str, one: str, other: str) -> str:
    return f"{one}+{other}"


def latest(one: str, other: str) -> str:
    return other


def both(one: str, other: str | None) -> str:
    return one + _java(other)


def empty() -> str:
    return ""


def last_character(key: str, value: str) -> tuple[str, str]:
    return value[-1], value


def of_group(key: str, value: str) -> tuple[str | None, str]:
    return group(value), value


def regrouped(table: Table) -> GroupedTable[Table]:
    return table.group_by(of_group)


def totals(grouped: GroupedTable[Table]) -> Table:
    return grouped.aggregate(empty, add, subtract, name="agg")


def tumbling(stream: Stream) -> WindowedStream[Table]:
    return stream.group_by_key().tumbling(20, grace_ms=10)


def hopping(stream: Stream) -> WindowedStream[Table]:
    return stream.group_by_key().hopping(30, every_ms=10, grace_ms=5)


def session(stream: Stream) -> SessionedStream[Table]:
    return stream.group_by_key().session(8, grace_ms=12)


def windows(table: Table) -> Stream:
    def named(key: Windowed, value: object) -> str:
        return f"{key.key}@{key.window.start}-{key.window.end}"

    return table.to_stream().key_by(named)


def closed(table: Table) -> Stream:
    return windows(table.suppress_until_closed())


def text(table: Table | Stream) -> Stream:
    stream = table.to_stream() if isinstance(table, Table) else table
    return stream.map_values(lambda key, value: None if value is None else str(value))


def stateless(app: App) -> None:
    kept = app.stream("a").filter(lambda key, value: value != "3")
    kept.flat_map_values(lambda key, value: ["null"] if value is None else [value, value + "x"]).to("out")


def branches(app: App) -> None:
    found = app.stream("a").branch({"nokey": lambda key, value: key is None, "small": small}, default="rest")
    rest = found["rest"].map_values(lambda key, value: f"{_java(value)}rest")
    rest.merge(found["small"].map_values(lambda key, value: f"{_java(value)}small")).to("out")


def aggregate_to_null(app: App) -> None:
    def add_or_forget(key: str, value: str, aggregate: str) -> str | None:
        return None if value == "4" else aggregate + value

    app.stream("a").group_by_key().aggregate(empty, add_or_forget, name="agg").to("out")


def table_map_to_null(app: App) -> None:
    mapped = app.table("t").map_values(lambda key, value: None if value == "2" else value + "m", name="m")
    mapped.to("out")


def join_of_filtered(app: App) -> None:
    right = app.table("u").map_values(lambda key, value: value + "m")
    app.table("t").filter(small).left_join(right, pair).to("out")


def filter_of_join(app: App) -> None:
    app.table("t").outer_join(app.table("u"), pair).filter(lambda key, value: "1" not in value).to("out")


def rekeyed_join(app: App) -> None:
    app.stream("a").key_by(lambda key, value: value).left_join(app.table("t"), pair).to("out")


def join_stream_aggregate(app: App) -> None:
    stream, other = app.stream("a"), app.stream("b")
    stream.join(other.group_by_key().aggregate(empty, add, name="agg"), pair).to("out")


def add_other(key: str, value: str | None, aggregate: str) -> str:
    return f"{aggregate}-{_java(value)}"


def two_grouped(
    app: App, of: TimeWindows | SlidingWindows | SessionWindows, merger: Merger | None = None
) -> Table:
    grouped = [(app.stream("a").group_by_key(), add), (app.stream("b").group_by_key(), add_other)]
    return cogroup(grouped, empty, windows=of, merger=merger, name="agg")


def two_streams(app: App) -> None:
    other = app.stream("b").group_by(lambda key, value: value)
    cogroup([(app.stream("a").group_by_key(), add), (other, add_other)], empty, name="agg").to("out")


WITHIN = JoinWindows(before_ms=5, after_ms=10, grace_ms=15)
AT_ONCE = JoinWindows(before_ms=5, after_ms=10, grace_ms=15, waits=False)


def rekeyed_join_streams(app: App) -> None:
    left = app.stream("a").key_by(lambda key, value: group(value))
    right = app.stream("b").key_by(lambda key, value: group(value))
    left.left_join(right, pair, within=WITHIN).to("out")


def foreign_key_join_with_itself(app: App) -> None:
    table = app.table("t")
    table.left_join(table, pair, on=referred).to("out")


def foreign_key_joins_with_one_table(app: App) -> None:
    other = app.table("u")
    joined = app.table("t").left_join(other, pair, on=referred)
    joined.left_join(other, pair, on=lambda key, value: referred(key, value[0])).to("out")


def rekeyed_join_with_own_table(app: App) -> None:
    stream = app.stream("a")
    stream.key_by(lambda key, value: group(value)).left_join(stream.to_table(), pair).to("out")


def rekeyed_join_with_source_table(app: App) -> None:
    table = app.table("t")
    changes = table.to_stream().filter(lambda key, value: value is not None)
    changes.key_by(referred).left_join(table, pair).to("out")


def join_again_after_aggregate(app: App) -> None:
    table = app.table("t")
    grouped = app.stream("a").join(table, pair).group_by(lambda key, value: f"k{value[-1]}")
    grouped.reduce(latest).to_stream().left_join(table, pair).to("out")


def tables_join_with_own_aggregate(app: App) -> None:
    table = app.table("t")
    grouped = table.group_by(lambda key, value: (_java(referred(key, value)), value))
    table.left_join(grouped.aggregate(empty, add, subtract, name="agg"), pair).to("out")


def join_with_own_aggregate(app: App) -> None:
    stream = app.stream("a")
    grouped = stream.group_by(lambda key, value: group(value))
    stream.left_join(grouped.aggregate(empty, add, name="agg"), pair).to("out")


def merge_with_rekeyed(app: App) -> None:
    stream = app.stream("a")
    rekeyed = stream.key_by(lambda key, value: group(value)).repartition()
    stream.merge(rekeyed).group_by_key().aggregate(empty, add, name="agg").to("out")


def merge_streams_of_one_topic(app: App) -> None:
    first, second = (
        app.stream("a").map_values(lambda key, value, number=number: f"{_java(value)}{number}")
        for number in (1, 2)
    )
    first.merge(second).to("out")


def join_with_rekeyed(app: App) -> None:
    stream = app.stream("a")
    rekeyed = stream.key_by(lambda key, value: group_key(value))
    stream.outer_join(rekeyed, pair, within=WITHIN).to("out")


def cogroup_with_rekeyed(app: App) -> None:
    stream = app.stream("a")
    rekeyed = stream.key_by(lambda key, value: group(value)).repartition()
    cogroup([(stream.group_by_key(), add), (rekeyed.group_by_key(), add)], empty, name="agg").to("out")


TOPOLOGIES: dict[str, Build] = {
    "stateless": stateless,
    "branches": branches,
    "count": lambda app: text(app.stream("a").group_by_key().count()).to("out"),
    "count_by": lambda app: text(app.stream("a").group_by(lambda key, value: group(value)).count()).to("out"),
    "reduce": lambda app: app.stream("a").group_by_key().reduce(both).to("out"),
    "aggregate": lambda app: app.stream("a").group_by_key().aggregate(empty, add, name="agg").to("out"),
    "aggregate_to_null": aggregate_to_null,
    "table": lambda app: app.table("t").to("out"),
    "table_filter": lambda app: app.table("t").filter(small).to("out"),
    "table_filter_named": lambda app: app.table("t").filter(small, name="f").to("out"),
    "stored_table_filter": lambda app: app.table("t", name="t").filter(small).to("out"),
    "stored_table_filter_named": lambda app: app.table("t", name="t").filter(small, name="f").to("out"),
    "table_map": lambda app: app.table("t").map_values(lambda key, value: value + "m").to("out"),
    "table_map_to_null": table_map_to_null,
    "table_count": lambda app: text(regrouped(app.table("t")).count()).to("out"),
    "table_aggregate": lambda app: totals(regrouped(app.table("t"))).to("out"),
    "table_reduce": lambda app: (
        regrouped(app.table("t"))
        .reduce(both, lambda one, other: subtract("", other, one), name="agg")
        .to("out")
    ),
    "filtered_table_aggregate": lambda app: totals(
        regrouped(app.table("t").filter(small).map_values(lambda key, value: value))
    ).to("out"),
    "aggregate_of_aggregate": lambda app: text(
        regrouped(app.stream("a").group_by_key().reduce(latest)).count()
    ).to("out"),
    "filter_of_aggregate": lambda app: app.stream("a").group_by_key().reduce(latest).filter(small).to("out"),
    "join_tables": lambda app: app.table("t").join(app.table("u"), pair).to("out"),
    "left_join_tables": lambda app: app.table("t").left_join(app.table("u"), pair).to("out"),
    "outer_join_tables": lambda app: app.table("t").outer_join(app.table("u"), pair).to("out"),
    "join_tables_named": lambda app: app.table("t").join(app.table("u"), pair, name="j").to("out"),
    "join_of_joins": lambda app: (
        app.table("t").left_join(app.table("u"), pair).join(app.table("v"), pair).to("out")
    ),
    "outer_of_inner": lambda app: (
        app.table("t").join(app.table("u"), pair).outer_join(app.table("v"), pair).to("out")
    ),
    "join_of_filtered": join_of_filtered,
    "filter_of_join": filter_of_join,
    "aggregate_of_join": lambda app: totals(
        app.table("t").left_join(app.table("u"), pair).group_by(last_character)
    ).to("out"),
    "aggregate_of_outer_join": lambda app: totals(
        app.table("t").outer_join(app.table("u"), pair).group_by(last_character)
    ).to("out"),
    "join_stream_table": lambda app: app.stream("a").join(app.table("t"), pair).to("out"),
    "left_join_stream_table": lambda app: app.stream("a").left_join(app.table("t"), pair).to("out"),
    "rekeyed_join_stream_table": rekeyed_join,
    "join_stream_aggregate": join_stream_aggregate,
    "tumbling": lambda app: windows(tumbling(app.stream("a")).aggregate(empty, add, name="w")).to("out"),
    "tumbling_count": lambda app: text(windows(tumbling(app.stream("a")).count())).to("out"),
    "hopping": lambda app: windows(hopping(app.stream("a")).aggregate(empty, add, name="w")).to("out"),
    "hopping_reduce": lambda app: windows(hopping(app.stream("a")).reduce(both)).to("out"),
    "tumbling_regrouped": lambda app: totals(regrouped(tumbling(app.stream("a")).reduce(latest))).to("out"),
    "tumbling_final": lambda app: windows(
        tumbling(app.stream("a")).emit("final").aggregate(empty, add, name="w")
    ).to("out"),
    "hopping_final": lambda app: windows(
        hopping(app.stream("a")).emit("final").aggregate(empty, add, name="w")
    ).to("out"),
    "session": lambda app: windows(session(app.stream("a")).aggregate(empty, add, merge, name="s")).to("out"),
    "session_count": lambda app: text(windows(session(app.stream("a")).count())).to("out"),
    "session_final": lambda app: windows(
        session(app.stream("a")).emit("final").aggregate(empty, add, merge, name="s")
    ).to("out"),
    "join_streams": lambda app: app.stream("a").join(app.stream("b"), pair, within=WITHIN).to("out"),
    "left_join_streams": lambda app: (
        app.stream("a").left_join(app.stream("b"), pair, within=WITHIN).to("out")
    ),
    "outer_join_streams": lambda app: (
        app.stream("a").outer_join(app.stream("b"), pair, within=WITHIN).to("out")
    ),
    "outer_join_streams_no_grace": lambda app: (
        app.stream("a").outer_join(app.stream("b"), pair, within=JoinWindows(4, 4)).to("out")
    ),
    "outer_join_streams_back": lambda app: (
        app.stream("a").outer_join(app.stream("b"), pair, within=JoinWindows(10, 2, grace_ms=3)).to("out")
    ),
    "join_streams_at_once": lambda app: app.stream("a").join(app.stream("b"), pair, within=AT_ONCE).to("out"),
    "left_join_streams_at_once": lambda app: (
        app.stream("a").left_join(app.stream("b"), pair, within=AT_ONCE).to("out")
    ),
    "outer_join_streams_at_once": lambda app: (
        app.stream("a").outer_join(app.stream("b"), pair, within=AT_ONCE).to("out")
    ),
    "outer_join_streams_of_one_topic": lambda app: (
        app.stream("a").outer_join(app.stream("a"), pair, within=WITHIN).to("out")
    ),
    "merge_streams_of_one_topic": merge_streams_of_one_topic,
    "rekeyed_join_streams": rekeyed_join_streams,
    "sliding": lambda app: windows(
        app.stream("a").group_by_key().sliding(10, grace_ms=15).aggregate(empty, add, name="w")
    ).to("out"),
    "sliding_no_grace": lambda app: windows(app.stream("a").group_by_key().sliding(25).reduce(both)).to(
        "out"
    ),
    "sliding_final": lambda app: windows(
        app.stream("a").group_by_key().sliding(10, grace_ms=15).emit("final").aggregate(empty, add, name="w")
    ).to("out"),
    "sliding_final_no_grace": lambda app: windows(
        app.stream("a").group_by_key().sliding(25).emit("final").reduce(both, name="w")
    ).to("out"),
    "to_table": lambda app: app.stream("a").to_table().to("out"),
    "to_table_regrouped": lambda app: text(
        regrouped(app.stream("a").key_by(lambda key, value: group(value)).to_table()).count()
    ).to("out"),
    "cogroup": two_streams,
    "cogroup_tumbling": lambda app: windows(two_grouped(app, TimeWindows(20, 20, 10))).to("out"),
    "cogroup_hopping": lambda app: windows(two_grouped(app, TimeWindows(30, 10, 5))).to("out"),
    "cogroup_sliding": lambda app: windows(two_grouped(app, SlidingWindows(10, 15))).to("out"),
    "cogroup_session": lambda app: windows(two_grouped(app, SessionWindows(8, 12), merge)).to("out"),
    "cogroup_tumbling_closed": lambda app: closed(two_grouped(app, TimeWindows(20, 20, 10))).to("out"),
    "cogroup_hopping_closed": lambda app: closed(two_grouped(app, TimeWindows(30, 10, 5))).to("out"),
    "cogroup_sliding_closed": lambda app: closed(two_grouped(app, SlidingWindows(10, 15))).to("out"),
    "cogroup_session_closed": lambda app: closed(two_grouped(app, SessionWindows(8, 12), merge)).to("out"),
    "foreign_key_join": lambda app: app.table("t").join(app.table("u"), pair, on=referred).to("out"),
    "left_foreign_key_join": lambda app: (
        app.table("t").left_join(app.table("u"), pair, on=referred).to("out")
    ),
    "foreign_key_join_named": lambda app: (
        app.table("t").join(app.table("u"), pair, on=referred, name="fk").to("out")
    ),
    "foreign_key_join_of_filtered": lambda app: (
        app.table("t").filter(small).left_join(app.table("u").filter(small), pair, on=referred).to("out")
    ),
    "aggregate_of_foreign_key_join": lambda app: totals(
        app.table("t").left_join(app.table("u"), pair, on=referred).group_by(last_character)
    ).to("out"),
    "join_of_foreign_key_join": lambda app: (
        app.table("t").join(app.table("u"), pair, on=referred).outer_join(app.table("v"), pair).to("out")
    ),
    "foreign_key_join_with_itself": foreign_key_join_with_itself,
    "foreign_key_joins_with_one_table": foreign_key_joins_with_one_table,
    "rekeyed_join_with_own_table": rekeyed_join_with_own_table,
    "rekeyed_join_with_source_table": rekeyed_join_with_source_table,
    "join_again_after_aggregate": join_again_after_aggregate,
    "tables_join_with_own_aggregate": tables_join_with_own_aggregate,
    "join_with_own_aggregate": join_with_own_aggregate,
    "merge_with_rekeyed": merge_with_rekeyed,
    "join_with_rekeyed": join_with_rekeyed,
    "cogroup_with_rekeyed": cogroup_with_rekeyed,
    "join_global_table": lambda app: (
        app.stream("a").join(app.global_table("t"), pair, on=lambda key, value: group_key(value)).to("out")
    ),
    "left_join_global_table": lambda app: (
        app.stream("a")
        .left_join(app.global_table("t"), pair, on=lambda key, value: group_key(value))
        .to("out")
    ),
    "global_table_twice": global_table_twice,
    "processor_stream_time": lambda app: (
        app.stream("a")
        .process(lambda: Sums("stream", 10), stores=[KeyValues("sums", placed=Rows.BY_KEY)])
        .to("out")
    ),
    "processor_wall_clock": lambda app: (
        app.stream("a")
        .process(lambda: Sums("wall", 7), stores=[KeyValues("sums", placed=Rows.BY_KEY)])
        .to("out")
    ),
    "processor_of_values": lambda app: (
        app.stream("a")
        .process_values(lambda: Sums("stream", 25), stores=[KeyValues("sums", placed=Rows.BY_KEY)])
        .group_by_key()
        .reduce(both)
        .to("out")
    ),
    "processor_with_table": processor_with_table,
    "versioned_table": lambda app: app.table("t", history_ms=30).to("out"),
    "join_versioned_table": lambda app: app.stream("a").join(app.table("t", history_ms=30), pair).to("out"),
    "left_join_versioned_table": lambda app: (
        app.stream("a").left_join(app.table("t", history_ms=12), pair).to("out")
    ),
    "join_versioned_filter": lambda app: (
        app.stream("a").left_join(app.table("t", history_ms=30).filter(small), pair).to("out")
    ),
    "join_versioned_table_grace": lambda app: (
        app.stream("a").join(app.table("t", history_ms=30), pair, grace_ms=10).to("out")
    ),
    "versioned_table_aggregate": lambda app: totals(regrouped(app.table("t", history_ms=30))).to("out"),
    "join_versioned_tables": lambda app: (
        app.table("t", history_ms=30).outer_join(app.table("u", history_ms=30), pair).to("out")
    ),
    "foreign_key_join_versioned": lambda app: (
        app.table("t", history_ms=30).join(app.table("u", history_ms=30), pair, on=referred).to("out")
    ),
    "suppress_windows": lambda app: windows(
        tumbling(app.stream("a")).aggregate(empty, add, name="w").suppress_until_closed()
    ).to("out"),
    "suppress_sessions": lambda app: windows(
        session(app.stream("a")).aggregate(empty, add, merge, name="s").suppress_until_closed()
    ).to("out"),
    "suppress_time": lambda app: app.table("t").suppress(12).to("out"),
    "suppress_keys": lambda app: app.table("t").suppress(50, max_keys=2).to("out"),
    "suppress_regrouped": lambda app: totals(regrouped(app.table("t").suppress(12))).to("out"),
    "session_regrouped": lambda app: totals(regrouped(session(app.stream("a")).reduce(latest))).to("out"),
}
