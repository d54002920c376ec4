"""Configurations of groups (KIP-848): their values and sources, what is refused, and what members see of a change."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.group_calls import find_coordinator
from conformance.test_behaviours_admin import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    alter,
    config_resources,
    describe,
    node_id,
)
from conformance.topics import new_topic
from conformance.wire import Wire, unique_name
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from felice.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from felice.protocol.messages.describe_configs import ConfigSource, ResourceType
from waiting import wait_until

GROUP = int(ResourceType.GROUP)
SESSION, HEARTBEAT, INTERVAL = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)
DEFAULTS = {SESSION: "45000", HEARTBEAT: "5000", INTERVAL: "1000"}


def shown(wire: Wire, group: str) -> dict[str, Any]:
    return {row.name: row for row in describe(wire, GROUP, group).configs}


def values(wire: Wire, group: str) -> dict[str, str]:
    rows = shown(wire, group)
    return {name: rows[name].value for name in DEFAULTS}


def replace(wire: Wire, group: str, options: dict[str, str], *, validate_only: bool = False) -> Any:
    rows = [AlterableConfig(name=name, value=value) for name, value in options.items()]
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=rows)
    return wire.ask(AlterConfigsRequest(resources=[resource], validate_only=validate_only)).responses[0]


def test_a_group_that_does_not_exist_has_the_brokers_values(wire: Wire) -> None:
    group = unique_name("group")
    assert values(wire, group) == DEFAULTS
    row = shown(wire, group)[SESSION]
    assert (row.config_source, row.read_only, row.is_sensitive) == (ConfigSource.DEFAULT_CONFIG, False, False)
    assert [(found.name, found.value, found.source) for found in row.synonyms] == [
        ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT_CONFIG)
    ]


def test_an_option_is_set_listed_and_deleted(wire: Wire) -> None:
    group = unique_name("group/with?odd names")
    assert alter(wire, group, (SESSION, SET, "50000"), kind=GROUP).error_code == 0
    wait_until(lambda: values(wire, group) == {**DEFAULTS, SESSION: "50000"})
    row = shown(wire, group)[SESSION]
    assert row.config_source == ConfigSource.GROUP_CONFIG
    assert [(found.name, found.value, found.source) for found in row.synonyms] == [
        (SESSION, "50000", ConfigSource.GROUP_CONFIG),
        ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT_CONFIG),
    ]
    assert group in [found.resource_name for found in config_resources(wire, GROUP).config_resources]
    assert alter(wire, group, (SESSION, DELETE, None), kind=GROUP).error_code == 0
    wait_until(lambda: values(wire, group) == DEFAULTS)


def test_all_options_are_replaced(wire: Wire) -> None:
    group = unique_name("group")
    assert replace(wire, group, {SESSION: "50000", HEARTBEAT: "6000"}).error_code == 0
    wait_until(lambda: values(wire, group) == {**DEFAULTS, SESSION: "50000", HEARTBEAT: "6000"})
    assert replace(wire, group, {INTERVAL: "0"}, validate_only=True).error_code == 0
    assert replace(wire, group, {INTERVAL: "7"}).error_code == 0
    wait_until(lambda: values(wire, group) == {**DEFAULTS, INTERVAL: "7"})
    assert replace(wire, group, {}).error_code == 0
    wait_until(lambda: values(wire, group) == DEFAULTS)


@pytest.mark.parametrize(
    "change",
    [
        (SESSION, SET, "44999"),
        (SESSION, SET, "60001"),
        (HEARTBEAT, SET, "4999"),
        (HEARTBEAT, SET, "15001"),
        (INTERVAL, SET, "15001"),
        (INTERVAL, SET, "-1"),
        (SESSION, SET, "soon"),
        (SESSION, APPEND, "1"),
        ("no.such.option", SET, "1"),
    ],
)
def test_what_a_group_must_not_have(wire: Wire, change: tuple[str, int, str]) -> None:
    assert alter(wire, unique_name("group"), change, kind=GROUP).error_code == ErrorCode.INVALID_CONFIG


def test_the_empty_name_is_no_group(wire: Wire) -> None:
    assert describe(wire, GROUP, "").error_code == ErrorCode.INVALID_REQUEST
    assert alter(wire, "", (SESSION, SET, "50000"), kind=GROUP).error_code == ErrorCode.INVALID_REQUEST
    assert replace(wire, "", {SESSION: "50000"}).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("group", [".", "..", "<default>"])
def test_any_other_name_is_one(wire: Wire, group: str) -> None:
    assert alter(wire, group, (INTERVAL, SET, "3"), kind=GROUP).error_code == 0
    wait_until(lambda: values(wire, group)[INTERVAL] == "3")
    assert alter(wire, group, (INTERVAL, DELETE, None), kind=GROUP).error_code == 0


def test_a_member_hears_of_a_change_with_its_next_heartbeat(wire: Wire) -> None:
    group, topic = unique_name("group"), new_topic(wire)

    def beat(epoch: int, names: list[str] | None = None) -> Any:
        return wire.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id="m",
                member_epoch=epoch,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=names,
                topic_partitions=[] if epoch == 0 else None,
            ),
            1,
        )

    find_coordinator(wire, group)
    wait_until(lambda: beat(0, [topic]).error_code == 0)
    joined = beat(0, [topic])
    assert (joined.error_code, joined.heartbeat_interval_ms) == (0, 5_000)
    assert alter(wire, group, (HEARTBEAT, SET, "6000"), kind=GROUP).error_code == 0
    wait_until(lambda: beat(joined.member_epoch).heartbeat_interval_ms == 6_000)
    assert beat(-1).error_code == 0
    assert alter(wire, group, (HEARTBEAT, DELETE, None), kind=GROUP).error_code == 0


def test_the_brokers_value_changes_while_it_runs(wire: Wire) -> None:
    group, broker, name = unique_name("group"), node_id(wire), f"group.{INTERVAL}"
    assert alter(wire, broker, (name, SET, "15001"), kind=BROKER).error_code != 0
    assert alter(wire, broker, (name, SET, "2000"), kind=BROKER).error_code == 0
    wait_until(lambda: values(wire, group)[INTERVAL] == "2000")
    assert shown(wire, group)[INTERVAL].config_source == ConfigSource.DYNAMIC_BROKER_CONFIG
    assert alter(wire, broker, (name, DELETE, None), kind=BROKER).error_code == 0
    wait_until(lambda: values(wire, group) == DEFAULTS)
