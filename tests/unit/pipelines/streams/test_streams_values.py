"""What stores and topics take: values that come back as they were, or an error that names the record."""

from __future__ import annotations

import pickle
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np
import pytest

from felice.pipelines.streams.formats import FORMATS
from felice.pipelines.streams.record import Change
from felice.pipelines.streams.stores import ChangeBuffer, KeyValueStore
from felice.streams import (
    App,
    DeadLetters,
    FormatError,
    KeyValues,
    Processor,
    Record,
    StreamsError,
    TestDriver,
    WindowValues,
)


class State(StrEnum):
    OPEN = "open"


class Level(IntEnum):
    LOW = 1


class Euro(float):
    pass


def rows(driver: TestDriver, topic: str = "out") -> list[tuple[Any, Any]]:
    return [(record.key, record.value) for record in driver.read(topic)]


@pytest.mark.parametrize(
    ("value", "kept"),
    [(np.float64(1.5), 1.5), (State.OPEN, "open"), (Level.LOW, 1), (Euro(2), 2.0), (True, True)],
)
def test_a_value_of_a_class_is_kept_as_the_plain_value_that_it_stands_for(value: Any, kept: Any) -> None:
    app = App("kept")
    seen: list[Any] = []

    def latest(key: str, given: Any, so_far: Any) -> Any:
        seen.append(so_far)
        return value

    app.stream("in").group_by_key().aggregate(lambda: None, latest, name="last").to("out")
    driver = TestDriver(app)
    driver.send("in", "k", 1)
    driver.send("in", "k", 2)
    assert [(type(one), one) for one in seen[1:]] == [(type(kept), kept)]
    assert rows(driver) == [("k", kept)] * 2


def test_the_greatest_number_by_numpy() -> None:
    app = App("greatest")
    app.stream("in").group_by_key().aggregate(lambda: 0.0, lambda k, v, so_far: np.maximum(v, so_far)).to(
        "out"
    )
    driver = TestDriver(app)
    for number in (1.5, 3.5, 2.5):
        driver.send("in", "k", number)
    assert rows(driver) == [("k", 1.5), ("k", 3.5), ("k", 3.5)]


@pytest.mark.parametrize("value", [np.int64(1), {1, 2}, {7: 1}, float("nan"), [float("inf")], object()])
def test_a_value_that_cannot_be_read_back_is_refused_with_its_record(value: Any) -> None:
    app = App("refused")
    app.stream("in").group_by_key().aggregate(lambda: None, lambda k, v, so_far: value, name="s").to("out")
    driver = TestDriver(app)
    with pytest.raises(
        StreamsError, match=r"topic 'in' with key 'k' and value 1 cannot be processed: FormatError"
    ):
        driver.send("in", "k", 1)
    assert driver.table("s") == {}


def test_a_refused_value_is_an_error_of_its_record_alone() -> None:
    app = App("skipped")
    numbers = app.stream("in", on_error="skip").group_by_key()
    numbers.aggregate(dict, lambda k, v, so_far: {v: 1}, name="s").to("out")
    driver = TestDriver(app)
    for value in ("a", 7, "b"):
        driver.send("in", "k", value)
    assert (driver.skipped, rows(driver)) == (1, [("k", {"a": 1}), ("k", {"b": 1})])


def test_a_name_that_is_a_number_is_refused_with_the_reason() -> None:
    app = App("names")

    def counted(key: str, value: int, so_far: dict[Any, int]) -> dict[Any, int]:
        so_far[value] = so_far.get(value, 0) + 1
        return so_far

    app.stream("in").group_by_key().aggregate(dict, counted).to("out")
    with pytest.raises(StreamsError, match="cannot be written as json: the name 7 is not text"):
        TestDriver(app).send("in", "k", 7)


def test_a_bytearray_of_a_store_is_a_copy() -> None:
    app = App("bytes", key="bytes", value="bytes")

    def appended(key: bytes, value: bytes, so_far: bytearray) -> bytearray:
        so_far.extend(value)
        return so_far

    words = app.stream("in").group_by_key().aggregate(bytearray, appended, name="words")
    words.group_by(lambda key, word: (word, word)).count(name="counts").to("out")
    driver = TestDriver(app)
    for letter in (b"a", b"b", b"c"):
        driver.send("in", b"k", letter)
    counts = {key: count for key, count in driver.table("counts").items() if count}
    assert counts == {b"abc": 1}
    assert driver.table("words") == {b"k": b"abc"}


def test_a_tuple_is_compared_as_it_is_written() -> None:
    app = App("changes")
    app.stream("in").dedupe_changes(lambda key, value: (value["a"], (value["b"],))).to("out")
    driver = TestDriver(app)
    for a, b in ((1, 2), (1, 2), (1, 3), (True, 3), (1.0, 3)):
        driver.send("in", "k", {"a": a, "b": b})
    assert len(rows(driver)) == 4


@pytest.mark.parametrize(
    ("name", "values", "passed"),
    [
        ("bytes", [b"a", b"a", b"\xff", None, None, b""], 4),
        ("double", [0.0, -0.0, float("nan"), float("nan"), 1, 1.0], 4),
        ("json", [1, True, 1.0, "1", "1", {"a": 1, "b": 2}, {"b": 2, "a": 1}], 6),
        ("string", ["é", "e\u0301", "e\u0301"], 2),
    ],
)
def test_whole_values_are_compared_by_their_bytes(name: str, values: list[Any], passed: int) -> None:
    app = App("changes", value=name)
    app.stream("in").dedupe_changes().to("out")
    driver = TestDriver(app)
    for value in values:
        driver.send("in", "k", value)
    assert len(rows(driver)) == passed


def test_numbers_that_json_has_not_are_refused_when_they_are_written() -> None:
    app = App("numbers")
    source = app.stream("in", on_bad_record=DeadLetters("bad"))
    source.to("out", on_bad_record=DeadLetters("dead"))
    driver = TestDriver(app)
    for data in (b"1e400", b"[-1e400]", b"1e308", b'"\\ud83d"', b"NaN", b"Infinity"):
        driver.send_bytes("in", b"k", data)
    assert [record.value for record in driver.read("dead")] == [b"inf", b"[-inf]"]
    assert rows(driver) == [("k", 1e308), ("k", "\ud83d")]
    assert [record.value for record in driver.read("bad")] == [b"NaN", b"Infinity"]


def test_a_lookup_by_a_key_of_another_type_is_refused() -> None:
    app = App("lookup")
    app.stream("in").left_join(app.global_table("t"), lambda value, row: row, on=lambda key, value: value).to(
        "out"
    )
    driver = TestDriver(app)
    driver.send("t", "7", "row")
    with pytest.raises(StreamsError, match="FormatError: 7 cannot be written as string"):
        driver.send("in", "k", 7)


def test_the_stores_of_a_processor_refuse_what_is_not_in_their_formats() -> None:
    class Keep(Processor):
        def init(self, context: Any) -> None:
            self.kept, self.windows = context.store("kept"), context.store("windows")

        def process(self, record: Record) -> None:
            for refused in (
                lambda: self.kept.get(7),
                lambda: self.kept.get(None),
                lambda: self.kept.put(b"k", 1),
                lambda: self.kept.put(None, 1),
                lambda: self.kept.put("k", {7: 1}),
                lambda: self.windows.put(7, 0, 1, 0),
                lambda: self.windows.fetch(7, 0),
                lambda: self.windows.get("k"),
            ):
                with pytest.raises(FormatError):
                    refused()
            with pytest.raises(TypeError):
                self.kept.put("k", 1, 1.5)
            self.kept.put("k", 1, np.int64(5))

    app = App("processor")
    app.stream("in").process(Keep, stores=[KeyValues("kept"), WindowValues("windows", 10, 100)]).to("out")
    driver = TestDriver(app)
    driver.send("in", "k", 1)
    assert driver.table("kept") == {"k": 1}


def test_rows_can_be_deleted_while_they_are_listed() -> None:
    store = KeyValueStore("s", FORMATS["json"], FORMATS["json"])
    for key in (10, 9, "a"):
        store.put(key, 1)
    found = []
    for key, _ in store.items():
        found.append(key)
        store.put(9, None)
    assert found == ["a", 10]


def test_held_changes_of_one_time_are_in_the_order_of_their_keys_bytes() -> None:
    held = ChangeBuffer("s", FORMATS["string"], FORMATS["json"])
    for key in ("k'", 'k"', "k", "ka"):
        held.put(5, Record(key, Change(1), 5, ((State.OPEN, bytearray(b"x")),)))
    assert pickle.loads(pickle.dumps(held.rows)) == held.rows
    assert [held.take().key for _ in range(4)] == ["k", 'k"', "k'", "ka"]
    with pytest.raises(FormatError, match="the header's name 7 is not text"):
        held.put(5, Record("k", Change(1), 5, ((7, b"x"),)))  # type: ignore[arg-type]
