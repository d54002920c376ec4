"""The times of groups follow the configurations in the image."""

import logging

import pytest

from felice.config import BrokerConfig
from felice.coordinator.group.configured_times import ConfiguredTimes
from felice.metadata import ClusterImage

BROKER = BrokerConfig()
SESSION = "consumer.session.timeout.ms"
INTERVAL = "consumer.assignment.interval.ms"


def test_a_change_applies_from_the_image_that_shows_it() -> None:
    images = [ClusterImage()]
    times = ConfiguredTimes(lambda: BROKER, lambda: images[-1])
    assert times.of("g").session_timeout_ms == 45_000
    images.append(ClusterImage(group_configs={"g": {SESSION: "50000"}}))
    assert [times.of(group).session_timeout_ms for group in ("g", "other")] == [50_000, 45_000]
    images.append(ClusterImage(group_configs={"g": {SESSION: "55000"}}))
    assert times.of("g").session_timeout_ms == 55_000
    images.append(ClusterImage())
    assert times.of("g").session_timeout_ms == 45_000


def test_a_change_of_the_brokers_value_applies_to_groups_without_their_own() -> None:
    brokers = [BROKER]
    image = ClusterImage(group_configs={"g": {INTERVAL: "7"}, "h": {SESSION: "50000"}})
    times = ConfiguredTimes(lambda: brokers[-1], lambda: image)
    assert [times.of(group).assignment_interval_ms for group in ("g", "h", "other")] == [7, 1_000, 1_000]
    brokers.append(BROKER.changed({"group.consumer.assignment.interval.ms": "2000"}))
    assert [times.of(group).assignment_interval_ms for group in ("g", "h", "other")] == [7, 2_000, 2_000]


def test_a_value_beyond_a_limit_is_logged_once_for_each_change(caplog: pytest.LogCaptureFixture) -> None:
    image = ClusterImage(group_configs={"g": {SESSION: "90000"}, "h": {SESSION: "50000"}})
    times = ConfiguredTimes(lambda: BROKER, lambda: image)
    with caplog.at_level(logging.WARNING, logger="felice.coordinator"):
        assert [times.of("g").session_timeout_ms for _ in range(3)] == [60_000] * 3
        assert times.of("h").session_timeout_ms == 50_000
    assert [getattr(record, "group", None) for record in caplog.records] == ["g"]
    assert "above group.consumer.max.session.timeout.ms (60000)" in caplog.records[0].reason  # type: ignore[attr-defined]
