"""Records that a broker would refuse are answered as the sink says, before they are sent."""

from __future__ import annotations

import time

import pytest

from felice.pipelines.limits import RefusedError, size_of
from felice.records.builder import build_batch
from felice.records.record import Record as LogRecord
from felice.streams import App, DeadLetters, TestDriver, TopicLimits

HOUR = 3_600_000
ALL = TopicLimits(2 * 1024 * 1024, after_max_ms=(1 << 63) - 1)


def now_ms() -> int:
    """The time at which a test runs: the module may have been imported hours before."""
    return time.time_ns() // 1_000_000


def copying(answer: str | DeadLetters, limits: TopicLimits, **others: TopicLimits) -> TestDriver:
    app = App("copying", value="string")
    app.stream("in").to("out", on_bad_record=answer)
    return TestDriver(app, limits={"out": limits, **others})


@pytest.mark.parametrize("headers", [(), (("h", b"x" * 300), ("é", None))])
@pytest.mark.parametrize("size", [0, 1, 100, 10_000, 2_000_000])
def test_the_size_is_at_least_that_of_the_batch_and_little_more(
    size: int, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    batch = build_batch([LogRecord(0, now_ms(), b"key", b"v" * size, headers)])
    assert len(batch) <= size_of(b"key", b"v" * size, headers) <= len(batch) + 40


@pytest.mark.parametrize(
    ("limits", "key", "value", "ahead_ms"),
    [
        (TopicLimits(max_message_bytes=200), "k", "x" * 200, 0),
        (TopicLimits(), "k", "x" * 1_100_000, 0),
        (TopicLimits(needs_key=True), None, "x", 0),
        (TopicLimits(), "k", "x", 2 * HOUR),
        (TopicLimits(after_max_ms=2 * HOUR), "k", "x", 3 * HOUR),
        (TopicLimits(before_max_ms=HOUR), "k", "x", -2 * HOUR),
    ],
)
def test_a_record_that_the_broker_would_refuse_is_skipped_or_set_aside(
    limits: TopicLimits, key: str | None, value: str, ahead_ms: int
) -> None:
    now = now_ms()
    timestamp = now + ahead_ms
    driver = copying("skip", limits)
    driver.send("in", key, value, timestamp)
    driver.send("in", "k", "good", now)
    assert [record.value for record in driver.read("out")] == ["good"] and driver.skipped == 1

    driver = copying(DeadLetters("dead"), limits, dead=ALL)
    driver.send("in", key, value, timestamp, (("h", b"y"),))
    (letter,) = driver.read("dead")
    assert letter.key == (key and key.encode()) and letter.timestamp == timestamp
    about = dict(letter.headers)
    assert about["h"] == b"y" and about["felice.topic"] == b"out" and b" out" in about["felice.error"]

    # Without a policy the broker decides, and the application stops.
    driver = copying("fail", limits)
    driver.send("in", key, value, timestamp)
    assert len(driver.read("out")) == 1


def test_a_dead_letter_is_made_so_that_its_topic_takes_it() -> None:
    now, small = now_ms(), TopicLimits(max_message_bytes=400, after_max_ms=HOUR)
    driver = copying(DeadLetters("dead"), small, dead=small)
    driver.send("in", "k", "x" * 400, now + 2 * HOUR)
    (letter,) = driver.read("dead")
    assert letter.key == b"k" and letter.value is None
    assert abs(letter.timestamp - now) < HOUR
    assert dict(letter.headers)["felice.error"].startswith(
        b"483 bytes are too large for out (max.message.bytes=400)"
    )


def test_limits_are_those_of_the_topics_configuration() -> None:
    configs = {
        "max.message.bytes": "1000",
        "cleanup.policy": "compact,delete",
        "message.timestamp.after.max.ms": "5",
        "message.timestamp.before.max.ms": "6",
        "message.timestamp.type": "CreateTime",
    }
    assert TopicLimits.of(configs) == TopicLimits(1000, True, 6, 5)
    assert TopicLimits.of(configs | {"message.timestamp.type": "LogAppendTime"}) == TopicLimits(
        1000, True, ALL.before_max_ms, ALL.after_max_ms
    )
    assert TopicLimits.of({"max.message.bytes": "1000"}) == TopicLimits(1000, after_max_ms=ALL.after_max_ms)
    assert TopicLimits.of({}) == TopicLimits()


def test_a_topic_chosen_for_each_record_has_limits_of_its_own() -> None:
    app = App("fanning", value="string")
    app.stream("in").to(lambda key, value: value[0], on_bad_record="skip")
    driver = TestDriver(app, limits={"a": TopicLimits(max_message_bytes=90)})
    for value in ("a", "a" * 50, "b" * 50):
        driver.send("in", "k", value)
    assert [record.value for record in driver.read("a")] == ["a"]
    assert [record.value for record in driver.read("b")] == ["b" * 50]


def test_the_error_names_topic_size_and_limit() -> None:
    with pytest.raises(RefusedError, match=r"182 bytes are too large for t \(max.message.bytes=100\)"):
        TopicLimits(100).check("t", None, b"x" * 100, now_ms(), ())
