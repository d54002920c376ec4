"""Records that a broker would refuse are answered as the sink says, before they are sent."""

from __future__ import annotations

import time

import pytest

from felice.pipelines.limits import RefusedError, size_of
from felice.pipelines.streams.record import Group
from felice.pipelines.streams.task import Task
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


@pytest.mark.parametrize("is_placed", [False, True])
def test_the_rest_of_a_group_keeps_its_order_and_numbers(is_placed: bool) -> None:
    """A broker would refuse two records of the group, the format one. A function sends one beside each record."""
    app = App("group", value="string")
    beside = app.side_output("beside")
    given = app.stream("in").map_values(lambda key, value: beside(key, value) or value)
    table = given.group_by_key().reduce(lambda so_far, value: value).to_stream() if is_placed else given
    sent = table.map_values(lambda key, value: int(value) if value == "9" else value)
    sent.to("out", value="string", on_bad_record="skip")
    limits = {"out": TopicLimits(max_message_bytes=120)}
    task = Task(app.topology, app.topology.parts()[-1], lambda topic: limits.get(topic, TopicLimits()))
    values = ["a", "b" * 90, "c", "9", "d" * 90, "e"]
    keys = [b"%d" % number for number in range(len(values))]
    sent_of = task.process_group(
        "in", Group(keys, [one.encode() for one in values], [5] * len(values), [()] * len(values))
    )
    given_out = [(number, "beside") for number in range(len(values))] + [(0, "out"), (2, "out"), (5, "out")]
    found = [(int(key), topic) for key, topic in zip(sent_of.keys, sent_of.topics, strict=True)]
    assert found == sorted(given_out) and task.skipped == 3
    if not is_placed:
        assert sent_of.numbers == [number for number, _ in found]


def test_a_topic_with_a_sink_that_skips_and_one_that_fails_leaves_out_records_of_the_first_only() -> None:
    app = App("twice", value="string")
    app.stream("in").to("out", on_bad_record="skip")
    app.stream("in2").to("out")
    driver = TestDriver(app, limits={"out": TopicLimits(max_message_bytes=90)})
    for topic in ("in", "in2"):
        driver.send(topic, "k", "x" * 90)
    assert len(driver.read("out")) == 1 and driver.skipped == 1


def test_the_error_names_topic_size_and_limit() -> None:
    with pytest.raises(RefusedError, match=r"182 bytes are too large for t \(max.message.bytes=100\)"):
        TopicLimits(100).check("t", None, b"x" * 100, now_ms(), ())
