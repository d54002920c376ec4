"""Topics whose keys are of windowed tables are read as streams and tables."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from felice.streams import (
    App,
    Format,
    Stream,
    TestDriver,
    TopologyError,
    Window,
    Windowed,
    session_windowed,
    time_windowed,
)

TIMES = (3, 7, 12, 40)
WINDOWS: dict[str, tuple[Callable[[Stream], None], Callable[[], Format], list[tuple[Windowed, int]]]] = {
    "time": (
        lambda stream: stream.group_by_key().tumbling(10).count(name="n").to("out"),
        lambda: time_windowed("string", 10),
        [(Windowed("k", Window(start, start + 10)), count) for start, count in ((0, 2), (10, 1), (40, 1))],
    ),
    "session": (
        lambda stream: stream.group_by_key().session(5).count(name="n").to("out"),
        lambda: session_windowed("string"),
        [(Windowed("k", Window(3, 12)), 3), (Windowed("k", Window(40, 40)), 1)],
    ),
}


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_windowed_topic_is_read_as_it_was_written(kind: str, partitions: int) -> None:
    write, key, expected = WINDOWS[kind]
    writer = App("writer", value="string")
    write(writer.stream("in"))
    source = TestDriver(writer)
    for time in TIMES:
        source.send("in", "k", "v", time)

    app = App("reader")
    table = app.table("counts", key=key(), name="rows")
    stream = app.stream("events", key=key())
    stream.join(table, lambda own, count: [own, count]).to("joined")
    stream.group_by_key().count(name="events").to_stream().key_by(lambda key, count: key.key).to("plain")
    driver = TestDriver(app, partitions)
    for row in source.read("out"):
        driver.send("counts", *row)
    assert sorted(driver.table("rows").items()) == expected
    for windowed, _ in expected:
        driver.send("events", windowed, "e")
    assert [(one.key, one.value) for one in driver.read("joined")] == [
        (windowed, ["e", count]) for windowed, count in expected
    ]
    assert [(one.key, one.value) for one in driver.read("plain")] == [("k", 1)] * len(expected)


def test_windows_of_other_sizes_are_other_keys() -> None:
    app = App("reader")
    table = app.table("counts", key=time_windowed("string", 10))
    with pytest.raises(TopologyError, match="one side has keys of format windowed string"):
        app.stream("events", key=time_windowed("string", 20)).join(table, lambda own, count: own)
    with pytest.raises(ValueError, match="size of windows is 0 ms"):
        time_windowed("string", 0)
    with pytest.raises(ValueError, match="no format 'text'"):
        session_windowed("text")
