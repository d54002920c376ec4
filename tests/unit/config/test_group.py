"""Options of groups: the broker's values and limits, and what the broker refuses of its own values."""

import pytest

from felice.config import BrokerConfig, ConfigError
from felice.config.group import GroupConfig

SESSION, HEARTBEAT, INTERVAL = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)
BROKER = BrokerConfig()


def broker(**options: str) -> BrokerConfig:
    named = {f"group.consumer.{name.replace('_', '.')}": text for name, text in options.items()}
    return BrokerConfig.parse(named)[0]


def times(config: GroupConfig) -> tuple[int, int, int]:
    return (
        config.consumer_session_timeout_ms,
        config.consumer_heartbeat_interval_ms,
        config.consumer_assignment_interval_ms,
    )


def test_a_group_without_options_has_the_brokers_values() -> None:
    assert times(GroupConfig.of(BROKER)) == (45_000, 5_000, 1_000)
    changed = broker(session_timeout_ms="50000", heartbeat_interval_ms="6000", assignment_interval_ms="2")
    assert times(GroupConfig.of(changed)) == (50_000, 6_000, 2)
    assert times(GroupConfig.parse({HEARTBEAT: "7000"}, changed)) == (50_000, 7_000, 2)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({SESSION: "44999"}, "below group.consumer.min.session.timeout.ms (45000)"),
        ({SESSION: "60001"}, "above group.consumer.max.session.timeout.ms (60000)"),
        ({HEARTBEAT: "4999"}, "below group.consumer.min.heartbeat.interval.ms (5000)"),
        ({HEARTBEAT: "15001"}, "above group.consumer.max.heartbeat.interval.ms (15000)"),
        ({INTERVAL: "15001"}, "above group.consumer.max.assignment.interval.ms (15000)"),
        ({INTERVAL: "-1"}, "at least 0"),
        ({SESSION: "soon"}, "Not a number of type INT"),
        ({"share.auto.offset.reset": "latest"}, "Unknown group config name"),
    ],
)
def test_what_a_group_must_not_have(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError) as raised:
        GroupConfig.parse(options, BROKER)
    assert reason in str(raised.value)


def test_a_heartbeat_interval_is_shorter_than_the_session_timeout() -> None:
    wide = broker(min_session_timeout_ms="1", max_heartbeat_interval_ms="60000")
    with pytest.raises(ConfigError) as raised:
        GroupConfig.parse({SESSION: "6000", HEARTBEAT: "6000"}, wide)
    assert "it must be below consumer.session.timeout.ms (6000)" in str(raised.value)
    GroupConfig.parse({SESSION: "6000", HEARTBEAT: "5999"}, wide)


@pytest.mark.parametrize(
    ("stored", "in_force"),
    [
        ({SESSION: "90000"}, (60_000, 5_000, 1_000)),
        ({SESSION: "1", INTERVAL: "3"}, (45_000, 5_000, 3)),
        ({SESSION: "soon", HEARTBEAT: "6000"}, (45_000, 6_000, 1_000)),
        ({"share.auto.offset.reset": "latest", HEARTBEAT: "20000"}, (45_000, 15_000, 1_000)),
    ],
)
def test_a_stored_value_beyond_a_limit_is_replaced_by_the_limit(
    stored: dict[str, str], in_force: tuple[int, int, int]
) -> None:
    assert times(GroupConfig.in_force(stored, BROKER)) == in_force


def test_stored_times_that_contradict_each_other_are_not_in_force() -> None:
    wide = broker(min_session_timeout_ms="1", max_heartbeat_interval_ms="60000")
    assert times(GroupConfig.in_force({SESSION: "6000", HEARTBEAT: "6000"}, wide)) == (45_000, 5_000, 1_000)


@pytest.mark.parametrize(
    ("options", "named", "reason"),
    [
        ({"session_timeout_ms": "44999"}, "session.timeout.ms", "below group.consumer.min.session"),
        ({"session_timeout_ms": "60001"}, "session.timeout.ms", "above group.consumer.max.session"),
        ({"heartbeat_interval_ms": "4999"}, "heartbeat.interval.ms", "below group.consumer.min.heartbeat"),
        (
            {"assignment_interval_ms": "15001"},
            "assignment.interval.ms",
            "above group.consumer.max.assignment",
        ),
        ({"min_session_timeout_ms": "70000"}, "min.session.timeout.ms", "above group.consumer.max.session"),
        (
            {"max_heartbeat_interval_ms": "60000", "heartbeat_interval_ms": "45000"},
            "heartbeat.interval.ms",
            "below group.consumer.session.timeout.ms (45000)",
        ),
        ({"assignors": "uniform,uniform"}, "assignors", "must not be duplicated"),
        ({"assignors": "sticky"}, "assignors", "must be one of: uniform, range"),
        ({"assignors": ""}, "assignors", "must not be empty"),
    ],
)
def test_a_broker_refuses_values_that_contradict_each_other(
    options: dict[str, str], named: str, reason: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        broker(**options)
    assert raised.value.name == f"group.consumer.{named}"
    assert reason in str(raised.value)
