"""Joins of streams that do not wait, against a plain model.

The model is Kafka Streams' join of windows made with `JoinWindows.of`. `tests/streams` compares both with the operator
itself (`outer_join_streams_at_once`).
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from felice.streams import App, JoinWindows, TestDriver

Row = tuple[str, str | None, str | None, int]
"""Side, key, value, timestamp."""
Result = tuple[str | None, list[str | None], int]

ROWS = st.lists(
    st.tuples(
        st.sampled_from(("left", "right")),
        st.sampled_from(("a", "a", "b", None)),
        st.sampled_from(("x", "y", "z", None)),
        st.integers(0, 60),
    ),
    max_size=30,
)
KINDS = {"join": (), "left_join": ("left",), "outer_join": ("left", "right")}


def expected(rows: list[Row], windows: JoinWindows, kind: str) -> Iterator[Result]:
    retention_ms = windows.before_ms + windows.after_ms + windows.grace_ms
    kept: dict[str, list[tuple[int, str, str]]] = {"left": [], "right": []}
    newest = {"left": -1, "right": -1}
    for side, key, value, time in rows:
        is_left = side == "left"
        alone = [value, None] if is_left else [None, value]
        if key is None or value is None:
            if side in KINDS[kind] and value is not None:
                yield key, alone, time
            continue
        kept[side].append((time, key, value))
        newest[side] = max(newest[side], time)
        other = "right" if is_left else "left"
        before, after = (windows.before_ms, windows.after_ms)[:: 1 if is_left else -1]
        # Python's sort keeps records of one time as they came.
        partners = [
            (at, partner)
            for at, other_key, partner in sorted(kept[other], key=lambda one: one[0])
            if other_key == key and time - before <= at <= time + after and at > newest[other] - retention_ms
        ]
        for at, partner in partners:
            yield key, [value, partner] if is_left else [partner, value], max(time, at)
        if not partners and side in KINDS[kind]:
            yield key, alone, time


@given(ROWS, st.integers(0, 10), st.integers(0, 10), st.integers(0, 20), st.sampled_from(sorted(KINDS)))
@settings(deadline=None, max_examples=150)
def test_a_join_that_does_not_wait_sends_at_once_and_again(
    rows: list[Row], before_ms: int, after_ms: int, grace_ms: int, kind: str
) -> None:
    app = App("joins", value="string")
    windows = JoinWindows(before_ms, after_ms, grace_ms, waits=False)
    joined = getattr(app.stream("left"), kind)(
        app.stream("right"), lambda *both: list(both), within=windows, value="json"
    )
    joined.to("out")
    assert "alone" not in app.describe()
    driver = TestDriver(app)
    for row in rows:
        driver.send(*row)
    found = [(one.key, one.value, one.timestamp) for one in driver.read("out")]
    assert found == list(expected(rows, windows, kind))
