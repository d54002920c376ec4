"""`dedupe` against its definition: the first of an id passes, later ones until stream time is further on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from felice.streams import App, TestDriver

WITHIN_MS = 20
Event = tuple[str | None, int]


def passing(events: list[Event]) -> list[Event]:
    """The definition. An id's time is the stream time at which it passed."""
    time, passed, found = 0, {}, []
    for id_, timestamp in events:
        time = max(time, timestamp)
        if id_ is None or id_ not in passed or time - passed[id_] > WITHIN_MS:
            passed[id_] = time
            found.append((id_, timestamp))
    return found


events = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 100)), max_size=60)


@given(events)
def test_the_first_record_of_a_key_passes(given: list[Event]) -> None:
    app = App("once")
    app.stream("in").dedupe(within_ms=WITHIN_MS, name="seen").to("out")
    driver = TestDriver(app)
    for key, timestamp in given:
        driver.send("in", key, 1, timestamp)
    assert [(record.key, record.timestamp) for record in driver.read("out")] == passing(given)


@given(events)
def test_the_first_record_of_an_id_passes_with_its_key(given: list[Event]) -> None:
    app = App("once")
    app.stream("in").dedupe("id", within_ms=WITHIN_MS).to("out")
    driver = TestDriver(app)
    for number, (id_, timestamp) in enumerate(given):
        driver.send("in", f"k{number}", {"id": id_, "at": timestamp}, timestamp)
    records = driver.read("out")
    assert [(record.value["id"], record.timestamp) for record in records] == passing(given)
    assert [given[int(record.key[1:])] for record in records] == passing(given)


def test_ids_are_forgotten() -> None:
    app = App("once", value="int")
    app.stream("in").dedupe(within_ms=WITHIN_MS, name="seen").to("out")
    driver = TestDriver(app)
    for number in range(2_000):
        driver.send("in", str(number), number, number)
    assert len(driver.table("seen")) <= 2 * WITHIN_MS + 2
    assert len(driver.read("out")) == 2_000
