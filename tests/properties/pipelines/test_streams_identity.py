"""Two keys are one row if and only if they have the same bytes: in each format, store and topology, over any number of
partitions. Python's `==` takes 1, 1.0 and True for one key, and Kafka's stores do not.
"""

from __future__ import annotations

import io
import pickle
import uuid
from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import IntEnum, StrEnum
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felice.pipelines.errors import FormatError
from felice.pipelines.streams.formats import FORMATS, Format, session_windowed, time_windowed
from felice.pipelines.streams.join_stores import (
    HeldRecords,
    RecentRecords,
    SubscriptionStore,
    UnjoinedRecords,
)
from felice.pipelines.streams.record import Change, Record, Window, Windowed
from felice.pipelines.streams.stores import ChangeBuffer, KeyValueStore, Store
from felice.pipelines.streams.versioned import VersionedStore
from felice.pipelines.streams.window_stores import SessionStore, SlidingStore, WindowStore
from felice.streams import (
    App,
    JoinWindows,
    KeyValues,
    Processor,
    SessionWindows,
    Stream,
    TestDriver,
    TimeWindows,
    cogroup,
)


class Colour(IntEnum):
    RED = 1


class Word(StrEnum):
    ONE = "1"
    TRUE = "true"


class Number(int):
    """Equal to nothing, and of one hash: what Python thinks of a key must not matter."""

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 7


JSON_KEYS: list[Any] = [
    *(1, True, 1.0, 0, False, 0.0, -0.0, -1, 10**20, 1e20, 2**53, float(2**53), 1.5),
    *("1", "true", "null", "", "0", "[1]", "1.0", "é", "e\u0301", "\ud83d", "\U0001f600", "\ud83d\ude00"),
    *([], {}, [1], [True], [1.0], (1,), [None], [[1]], ["1"]),
    *({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": True, "b": 2}, {"a": [1]}, {"a": (1,)}, {"a": [-0.0]}),
    *(Colour.RED, Word.ONE, Word.TRUE, Number(1), Number(0), np.float64(1), np.float64(-0.0), np.str_("1")),
]
KEYS: dict[str, list[Any]] = {
    "json": JSON_KEYS,
    "string": ["", "1", "é", "e\u0301", "k\0", "k", Word.ONE, np.str_("k"), "\U0001f600", "k'", 'k"'],
    "bytes": [b"", b"k", bytearray(b"k"), memoryview(b"k"), np.bytes_(b"k"), b"k\0", b"\0", bytearray(b"")],
    "int": [1, True, 0, False, -1, Colour.RED, Number(1), np.int64(1), np.bool_(True).item(), 2**31 - 1],
    "long": [1, True, 0, -1, 2**53, 2**53 + 1, Colour.RED, Number(0), np.int64(-1)],
    "double": [
        *(1, 1.0, True, 0, 0.0, -0.0, False, float("nan"), -float("nan"), float("inf"), -float("inf")),
        *(Decimal(1), np.float32(1), np.float64(-0.0), Colour.RED, 2**53, float(2**53)),
    ],
}
KEYS |= {
    "short": [1, True, 0, False, -1, Colour.RED, Number(1), np.int16(1), 2**15 - 1],
    "float": [
        *(1, 1.0, True, 0, 0.0, -0.0, False, float("nan"), -float("nan"), float("inf"), -float("inf")),
        *(0.1, np.float32(0.1), Decimal(1), np.float64(-0.0), Colour.RED, 2**24, 2**24 + 1),
    ],
    "boolean": [True, False],
    "uuid": [uuid.UUID(int=0), uuid.UUID(int=1), uuid.UUID(str(uuid.UUID(int=1)).upper())],
}
EACH = pytest.mark.parametrize("name", FORMATS)
RETENTION_MS = 100

Put = Callable[[Any, Any, int], None]


def put_in(kind: str, key: Format) -> tuple[Store, Put]:
    """A store of a kind, and the function that puts a value under a key at a time."""
    text, name = FORMATS["string"], "s"
    if kind == "table":
        table = KeyValueStore(name, key, text)
        return table, table.put
    if kind == "versioned":
        versioned = VersionedStore(name, key, text, 1000)
        return versioned, lambda one, value, time: versioned.put(one, value, time) and None
    if kind == "changes":
        held = ChangeBuffer(name, key, text)
        return held, lambda one, value, time: held.put(time, Record(one, Change(value), time))
    if kind in ("windows", "sliding"):
        windows = (WindowStore if kind == "windows" else SlidingStore)(name, key, text, 10, RETENTION_MS)
        return windows, lambda one, value, time: windows.put(one, 0, value, time)
    if kind == "sessions":
        sessions = SessionStore(name, key, text, RETENTION_MS)
        return sessions, lambda one, value, time: sessions.put(
            sessions.row_key(Windowed(one, Window(0, 5)))[0], Window(0, 5), value
        )
    if kind == "subscriptions":
        subscriptions = SubscriptionStore(name, key, key)
        return subscriptions, lambda one, value, time: subscriptions.put(one, one, value.encode())
    if kind == "unjoined":
        alone = UnjoinedRecords(name, key, text, text)
        return alone, lambda one, value, time: alone.add(True, key.key_bytes(one), value, 5)
    if kind == "recent":
        recent = RecentRecords(name, key, text, RETENTION_MS)
        return recent, lambda one, value, time: recent.put(recent.key_bytes(one), value, time)
    waiting = HeldRecords(name, key, text)
    return waiting, lambda one, value, time: waiting.put(Record(one, value, time))


ONE_ROW = ["table", "versioned", "changes", "windows", "sliding", "sessions", "subscriptions", "unjoined"]
ROW_EACH = ["recent", "held"]


def loaded_again(store: Store, kind: str, key: Format) -> Store:
    """A new store with the changes of this one, as a file keeps them."""

    class OnlyPlain(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            raise AssertionError(f"{module}.{name} is in the state")

    written = pickle.dumps(store.take_changes(), protocol=5)
    made, _ = put_in(kind, key)
    made.load(OnlyPlain(io.BytesIO(written)).load())
    return made


def keys_with_bytes(store: Store, key: Format) -> list[bytes]:
    """The bytes of the keys of all rows of a store, as its lookups and listings give them."""
    if isinstance(store, KeyValueStore | VersionedStore):
        return [key.write(one) for one, _ in store.items()]
    if isinstance(store, WindowStore | SessionStore):
        return [key.write(one.key) for one, _ in store.items()]
    if isinstance(store, ChangeBuffer):
        return [key.write(store.take().key) for _ in range(len(store))]
    if isinstance(store, UnjoinedRecords):
        return [key.write(store.take(place).key) for place in list(store.places())]
    if isinstance(store, SubscriptionStore):
        return [row_key[0] for row_key in store.rows]
    assert isinstance(store, HeldRecords)
    return [key.write(one.key) for one in store.take_until(1000)]


@EACH
def test_the_confusable_keys_are_the_same_only_if_their_bytes_are(name: str) -> None:
    format_ = FORMATS[name]
    for one in KEYS[name]:
        for other in KEYS[name]:
            assert format_.is_same(one, other) == (format_.write(one) == format_.write(other)), (one, other)
        assert format_.write(format_.read(format_.write(one))) == format_.write(one)
        assert format_.write(format_.unpack(format_.pack(one))) == format_.write(one)
        assert type(format_.pack(one)) in (int, float, bool, str, bytes, bytearray)
        assert not format_.is_same(one, None) and not format_.is_same(None, one)


@EACH
@pytest.mark.parametrize("kind", ONE_ROW + ROW_EACH)
@pytest.mark.parametrize("is_windowed", [False, True])
def test_a_store_has_one_row_for_the_same_bytes(name: str, kind: str, is_windowed: bool) -> None:
    keys, format_ = KEYS[name], FORMATS[name]
    if is_windowed:
        keys, format_ = [Windowed(key, Window(5, 15)) for key in keys], time_windowed(format_, 10)
    store, put = put_in(kind, format_)
    for number, key in enumerate(keys):
        put(key, f"{number}", number)
    expected = [format_.write(key) for key in keys]
    count = len(expected) if kind in ROW_EACH else len(set(expected))
    assert len(store.rows) == count
    again = loaded_again(store, kind, format_)
    assert again.rows == store.rows
    if kind == "recent":
        assert isinstance(again, RecentRecords)
        for key in keys:
            same = [str(number) for number, one in enumerate(expected) if one == format_.write(key)]
            assert [value for _, value in again.fetch(again.key_bytes(key), 0, 1000, 0)] == same
        return
    if isinstance(again, KeyValueStore):
        for key in keys:
            last = max(number for number, one in enumerate(expected) if one == format_.write(key))
            assert again.get(key) == (str(last), last)
    found = keys_with_bytes(again, format_)
    assert sorted(found) == sorted(expected if kind in ROW_EACH else set(expected))


@EACH
@pytest.mark.parametrize("kind", [*ONE_ROW, "recent"])
def test_a_key_of_the_wrong_type_is_refused(name: str, kind: str) -> None:
    store, put = put_in(kind, FORMATS[name])
    for wrong in ({1, 2}, object(), None, {7: 1}):
        with pytest.raises(FormatError, match=f"cannot be written as {name}"):
            put(wrong, "x", 1)
    assert not store.rows


EARLIER: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "table": lambda key: (key, ("x", 1)),
    "versioned": lambda key: (key, ((1, "x"),)),
    "changes": lambda key: (key, (1, "x", None, 1, ())),
    "windows": lambda key: ((key, 0), ("x", 1)),
    "sliding": lambda key: ((key, 0), ("x", 1)),
    "sessions": lambda key: ((key, 0, 5), "x"),
    "subscriptions": lambda key: ((key, key), b"digest"),
    "unjoined": lambda key: ((5, False, key), ("x",)),
    "held": lambda key: ((1, repr(key).__hash__()), (key, "x", ())),
}
"""Rows as releases with state of format 2 kept them, under a packed key."""


@pytest.mark.parametrize("kind", EARLIER)
def test_rows_of_an_earlier_release_are_found_by_their_bytes(kind: str) -> None:
    packed = {1: 1, "1": "1", b'{"b":1,"a":2}': {"b": 1, "a": 2}, 1.5: 1.5, False: False}
    store, _ = put_in(kind, FORMATS["json"])
    store.load([store.upgraded(EARLIER[kind](key)) for key in packed])
    found = keys_with_bytes(store, FORMATS["json"])
    assert sorted(found) == sorted(map(FORMATS["json"].write, packed.values()))
    windowed = time_windowed(FORMATS["json"], 10)
    store, _ = put_in(kind, windowed)
    store.load([store.upgraded(EARLIER[kind]((key, 5, 15))) for key in packed])
    keys = [Windowed(key, Window(5, 15)) for key in packed.values()]
    assert sorted(keys_with_bytes(store, windowed)) == sorted(map(windowed.write, keys))


def test_removed_windows_of_an_earlier_release_stay_removed() -> None:
    store, _ = put_in("windows", FORMATS["json"])
    store.load([store.upgraded(row) for row in (((1, 0), ("x", 1)), ((1, 20), ("x", 1)), (None, 10))])
    assert list(store.rows) == [(b"1", 20)]


@given(st.data())
@settings(max_examples=40)
def test_windowed_keys_are_the_same_only_if_their_bytes_are(data: st.DataObject) -> None:
    inner = data.draw(st.sampled_from(list(FORMATS)))
    format_ = data.draw(
        st.sampled_from([time_windowed(FORMATS[inner], 10), session_windowed(FORMATS[inner])])
    )
    windows = st.builds(Window, st.integers(0, 2), st.just(12))
    one, other = (Windowed(data.draw(st.sampled_from(KEYS[inner])), data.draw(windows)) for _ in range(2))
    assert format_.is_same(one, other) == (
        FORMATS[inner].is_same(one.key, other.key) and one.window == other.window
    )


class Sum(Processor):
    """Counts the records of each key in a store of its own."""

    def init(self, context: Any) -> None:
        self.sums = context.store("sums")

    def process(self, record: Record) -> Iterable[Record]:
        row = self.sums.get(record.key)
        count = 1 if row is None else row.value + 1
        self.sums.put(record.key, count, record.timestamp)
        return [record._replace(value=count)]


def pair(one: Any, other: Any) -> Any:
    return [one, other]


def added(key: Any, value: Any, so_far: int) -> int:
    return so_far + 1


def removed(key: Any, value: Any, so_far: int) -> int:
    return so_far - 1


def named(key: Any, value: Any) -> Any:
    """The key that a value names."""
    return None if value is None else value["of"]


def zero() -> int:
    return 0


def grouped(app: App) -> Any:
    return app.stream("a").group_by_key()


def regrouped(app: App) -> Any:
    return app.table("a").group_by(lambda key, value: (value["of"], value)).aggregate(zero, added, removed)


def cogrouped(app: App, **windows: Any) -> Any:
    return cogroup([(grouped(app), added), (app.stream("b").group_by_key(), added)], zero, **windows)


def merge(key: Any, one: int, other: int) -> int:
    return one + other


WINDOWS = JoinWindows(2, 2, 1000)
BUILT: dict[str, Callable[[App], Any]] = {
    "count": lambda app: grouped(app).count(),
    "group_by": lambda app: app.stream("a").group_by(named).count(),
    "tumbling": lambda app: grouped(app).tumbling(10, grace_ms=1000).count(),
    "final": lambda app: grouped(app).tumbling(10).emit("final").count(),
    "sliding": lambda app: grouped(app).sliding(3, grace_ms=1000).count(),
    "sessions": lambda app: grouped(app).session(2, grace_ms=1000).count(),
    "cogroup": cogrouped,
    "cogroup_windows": lambda app: cogrouped(app, windows=TimeWindows(10, 5, 1000)),
    "cogroup_sessions": lambda app: cogrouped(app, windows=SessionWindows(2, 1000), merger=merge),
    "regrouped": regrouped,
    "stream_table": lambda app: app.stream("a").left_join(app.table("b"), pair),
    "stream_versioned": lambda app: app.stream("a").left_join(app.table("b", history_ms=1000), pair),
    "held_back": lambda app: app.stream("a").left_join(app.table("b", history_ms=9), pair, grace_ms=4),
    "global": lambda app: app.stream("a").left_join(app.global_table("b"), pair, on=named),
    "tables": lambda app: app.table("a").outer_join(app.table("b"), pair),
    "foreign": lambda app: app.table("a").left_join(app.table("b"), pair, on=named),
    "foreign_inner": lambda app: app.table("a").join(app.table("b"), pair, on=named),
    "streams": lambda app: app.stream("a").join(app.stream("b"), pair, within=WINDOWS),
    "streams_outer": lambda app: app.stream("a").outer_join(app.stream("b"), pair, within=WINDOWS),
    "dedupe": lambda app: app.stream("a").dedupe(within_ms=1000),
    "dedupe_id": lambda app: app.stream("a").dedupe(named, within_ms=1000),
    "changes": lambda app: app.stream("a").dedupe_changes(),
    "changes_of": lambda app: app.stream("a").dedupe_changes(lambda key, value: (named(key, value), (1,))),
    "processor": lambda app: app.stream("a").process(Sum, stores=[KeyValues("sums")]),
    "suppress": lambda app: app.table("a").suppress(2, max_keys=3),
    "repartition": lambda app: app.stream("a").key_by(named).group_by_key().count(),
    "to_table": lambda app: app.stream("a").key_by(named).to_table(),
}
# Each partition has its own stream time, and changes these results by that, as in Kafka Streams.
BY_TIME = {"final", "held_back", "suppress", "streams_outer"}


def text_of(key: Any) -> str:
    """A key's bytes as a text: texts cannot be mistaken for each other. They have the order of the bytes."""
    return FORMATS["json"].write(key).hex()


def as_text(value: Any) -> Any:
    """A key, or what a topology made of values, with the text of each key in place of it."""
    if isinstance(value, Windowed):
        return Windowed(text_of(value.key), value.window)
    if isinstance(value, dict):
        return {"of": text_of(value["of"])}
    return [as_text(one) for one in value] if isinstance(value, list) else value


Rows = list[tuple[str, Any, Any, int]]
Found = dict[str, list[tuple[Any, int]]]


def results(
    name: str, rows: Rows, partitions: int, told: Callable[[Any], Any], key_told: Callable[[Any], Any]
) -> Found:
    """What a topology writes under each key, in order."""
    app = App("same", key="json", value="json")
    made = BUILT[name](app)
    (made if isinstance(made, Stream) else made.to_stream()).to("out")
    driver = TestDriver(app, partitions)
    read = {formats.topic for part in app.topology.parts() for formats in part.sources}
    for row in rows:
        if row[0] in read:
            driver.send(*row)
    found: Found = {}
    for key, value, timestamp, _ in driver.read("out"):
        found.setdefault(repr(key_told(key)), []).append((told(value), timestamp))
    return found


def random_rows(dice: Random) -> Rows:
    """Keys, and the keys that values name, are confusable. Some values are null."""
    keys = [*dice.sample(JSON_KEYS, 6), 1, True, 1.0, "1"]
    return [
        (
            dice.choice("ab"),
            dice.choice(keys),
            None if dice.random() < 0.1 else {"of": dice.choice(keys)},
            dice.randrange(max(0, number - 3), number + 1),
        )
        for number in range(50)
    ]


def key_as_text(key: Any) -> Any:
    return as_text(key) if isinstance(key, Windowed) else text_of(key)


@pytest.mark.parametrize("name", BUILT)
@given(st.integers(0, 1 << 32))
@settings(max_examples=6, deadline=None)
def test_results_are_those_of_keys_that_cannot_be_confused(name: str, seed: int) -> None:
    rows = random_rows(Random(seed))
    plain = [(topic, text_of(key), value and as_text(value), time) for topic, key, value, time in rows]
    found = results(name, rows, 1, as_text, key_as_text)
    assert found == results(name, plain, 1, lambda value: value, lambda key: key)
    if name not in BY_TIME:
        for partitions in (2, 5):
            assert results(name, rows, partitions, as_text, key_as_text) == found


def test_the_rows_of_confusable_keys_are_read_from_a_store() -> None:
    app = App("counts", key="json")
    app.stream("in").group_by_key().count(name="counts").to("out")
    driver = TestDriver(app, 3)
    keys = [1, True, 1.0, 0, False, "1", [1], {"a": [True]}]
    for key in keys:
        driver.send("in", key, "x")
    assert [record.value for record in driver.read("out")] == [1] * len(keys)
    driver.send("in", True, "x")
    table, view = driver.table("counts"), driver.store("counts")
    assert len(table) == len(view) == len(keys)
    assert (table[True], table[1], table[1.0], view.get(True), view.get([1])) == (2, 1, 1, 2, 1)
    assert "true" not in table and {1, 2} not in table
    assert view.range(0, 1) == [(0, 1), (1, 1), (1.0, 1)] or len(view.range(0, 1)) == 3
    with pytest.raises(FormatError, match="cannot be written as json"):
        view.get({1, 2})


def test_a_deletion_is_of_its_own_key() -> None:
    app = App("rows", key="json")
    app.table("in", name="rows").to("out")
    driver = TestDriver(app)
    for key, value in ((1, "one"), (True, "true"), (True, None)):
        driver.send("in", key, value)
    assert driver.table("rows") == {1: "one"}
