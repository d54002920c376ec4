"""The sources of configuration values, and changes at run time."""

from __future__ import annotations

import pytest

from felice.config import BrokerConfig
from felice.config.option import INT_MAX
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.describe_configs import ConfigSource
from felice.server.configs.dynamic import check_dynamic, check_not_shut_out, usable, without_effect
from felice.server.configs.entries import (
    BrokerLayers,
    ConfigEntry,
    broker_entries,
    dynamic_default_entries,
    topic_entries,
)

NOTHING = BrokerLayers({}, {}, {})


def entry(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    return next(found for found in entries if found.name == name)


def test_the_strongest_source_gives_a_topics_value_and_all_are_named() -> None:
    layers = BrokerLayers(
        {"log.retention.ms": "3"},
        {"log.retention.ms": "4"},
        {"log.retention.ms": "5", "log.retention.hours": "2"},
    )
    found = entry(topic_entries({"retention.ms": "2"}, layers), "retention.ms")
    assert (found.value, found.source, found.read_only) == ("2", ConfigSource.TOPIC_CONFIG, False)
    assert found.synonyms == (
        ("retention.ms", "2", ConfigSource.TOPIC_CONFIG),
        ("log.retention.ms", "3", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("log.retention.ms", "4", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.retention.ms", "5", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.hours", "2", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    )
    in_hours = entry(topic_entries({}, BrokerLayers({}, {}, {"log.retention.hours": "2"})), "retention.ms")
    assert (in_hours.value, in_hours.source) == ("7200000", ConfigSource.STATIC_BROKER_CONFIG)


def test_the_synonyms_of_a_brokers_time_name_its_coarser_units() -> None:
    layers = BrokerLayers(
        {"log.retention.ms": "3"}, {}, {"log.retention.ms": "5", "log.retention.minutes": "9"}
    )
    found = entry(broker_entries(layers), "log.retention.ms")
    assert (found.value, found.read_only) == ("3", False)
    assert found.synonyms == (
        ("log.retention.ms", "3", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("log.retention.ms", "5", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.minutes", "9", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    )


def test_a_value_set_to_its_default_is_still_the_topics_own() -> None:
    found = entry(topic_entries({"retention.ms": "604800000"}, NOTHING), "retention.ms")
    assert found.source is ConfigSource.TOPIC_CONFIG
    assert entry(topic_entries({}, NOTHING), "retention.ms").source is ConfigSource.DEFAULT_CONFIG


def test_no_limit_is_minus_one_in_every_unit() -> None:
    layers = BrokerLayers({}, {}, {"log.retention.hours": "-1"})
    assert entry(topic_entries({}, layers), "retention.ms").value == "-1"


def test_a_brokers_entries_know_what_may_change() -> None:
    entries = broker_entries(BrokerLayers({}, {"max.connections": "7"}, {"broker.id": "4"}))
    assert (entry(entries, "max.connections").value, entry(entries, "max.connections").read_only) == (
        "7",
        False,
    )
    assert entry(entries, "num.partitions").read_only
    assert entry(entries, "num.partitions").value == "1"
    node_id = entry(entries, "node.id")
    assert (node_id.value, node_id.source) == ("4", ConfigSource.STATIC_BROKER_CONFIG)


def test_node_id_and_broker_id_are_one() -> None:
    """Whichever is set: both are shown as set."""
    for name in ("node.id", "broker.id"):
        entries = broker_entries(BrokerLayers({}, {}, {name: "4"}))
        for other in ("node.id", "broker.id"):
            found = entry(entries, other)
            assert (found.value, found.source) == ("4", ConfigSource.STATIC_BROKER_CONFIG), (name, other)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log.retention.hours", "168"),
        ("log.retention.minutes", None),
        ("log.retention.ms", None),
        ("log.roll.hours", "168"),
        ("log.roll.ms", None),
        ("log.roll.jitter.hours", "0"),
        ("log.roll.jitter.ms", None),
        ("log.flush.interval.ms", None),
        ("log.flush.interval.messages", "9223372036854775807"),
    ],
)
def test_a_time_that_has_several_units_has_its_default_in_the_coarsest(name: str, value: str | None) -> None:
    found = entry(broker_entries(NOTHING), name)
    assert (found.value, found.source) == (value, ConfigSource.DEFAULT_CONFIG)
    assert found.synonyms == (() if value is None else ((name, value, ConfigSource.DEFAULT_CONFIG),))


@pytest.mark.parametrize("name", ["retention.ms", "segment.ms", "segment.jitter.ms", "flush.ms"])
def test_a_topics_time_has_a_default_value_without_a_place_that_says_it(name: str) -> None:
    found = entry(topic_entries({}, NOTHING), name)
    assert (found.source, found.synonyms) == (ConfigSource.DEFAULT_CONFIG, ())
    assert found.value is not None
    segment_bytes = entry(topic_entries({}, NOTHING), "segment.bytes")
    assert segment_bytes.synonyms == (("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG),)


def test_hours_are_not_shown_as_minutes() -> None:
    entries = broker_entries(BrokerLayers({}, {}, {"log.retention.hours": "5"}))
    assert entry(entries, "log.retention.hours").value == "5"
    assert entry(entries, "log.retention.minutes").value is None
    assert entry(entries, "log.retention.ms").value is None


def test_only_values_set_for_all_brokers_are_described_for_the_empty_id() -> None:
    entries = dynamic_default_entries(BrokerLayers({"log.retention.ms": "1"}, {"max.connections": "7"}, {}))
    assert [(found.name, found.value) for found in entries] == [("max.connections", "7")]


def test_dynamic_options_may_change_and_others_may_not() -> None:
    static = BrokerConfig()
    check_dynamic({}, {"max.connections": "5", "log.retention.ms": "5"}, static, for_all=True)
    # A stored value stays, even if it would be refused now.
    check_dynamic({"num.partitions": "3"}, {"num.partitions": "3"}, static, for_all=False)
    for bad in ({"num.partitions": "3"}, {"ssl.client.auth": "none"}):
        with pytest.raises(ApiError) as error:
            check_dynamic({}, bad, static, for_all=False)
        assert error.value.code == ErrorCode.INVALID_REQUEST
        assert next(iter(bad)) in error.value.message


def test_a_bad_value_is_refused_with_the_reason() -> None:
    with pytest.raises(ApiError, match=r"max\.connections") as error:
        check_dynamic({}, {"max.connections": "many"}, BrokerConfig(), for_all=True)
    assert error.value.code == ErrorCode.INVALID_REQUEST


def test_options_without_effect_may_be_set_if_kafka_may_set_them() -> None:
    static = BrokerConfig()
    for good in ("num.io.threads", "max.connection.creation.rate", "no.such.option", "retention.ms"):
        check_dynamic({}, {good: "3"}, static, for_all=True)
    with pytest.raises(ApiError, match=r"num\.io\.threads"):
        check_dynamic({}, {"num.io.threads": "none"}, static, for_all=True)
    with pytest.raises(ApiError, match="longer than 255"):
        check_dynamic({}, {"x" * 256: "1"}, static, for_all=True)


def test_newly_set_options_without_effect_are_found() -> None:
    current = {"no.such.option": "1", "num.io.threads": "3", "max.connections": "5"}
    changed = {"no.such.option": "2", "num.io.threads": "3", "max.connections": "6", "other": "1"}
    assert without_effect(current, changed) == ["no.such.option", "other"]


def test_options_of_the_file_without_effect_are_shown_and_secrets_are_not() -> None:
    static = {"num.io.threads": "4", "my.own.thing": "1", "sasl.kerberos.kinit.cmd": "secret"}
    config, unknown = BrokerConfig.parse(static)
    assert unknown == list(static)
    entries = broker_entries(BrokerLayers({}, {}, {**config.originals, **config.without_effect}))
    threads = entry(entries, "num.io.threads")
    assert (threads.value, threads.source, threads.read_only) == (
        "4",
        ConfigSource.STATIC_BROKER_CONFIG,
        False,
    )
    for name in ("my.own.thing", "sasl.kerberos.kinit.cmd"):
        found = entry(entries, name)
        assert (found.value, found.is_sensitive, found.read_only) == (None, True, True)
        assert found.synonyms == ((name, None, ConfigSource.STATIC_BROKER_CONFIG),)


def test_an_unsupported_option_shows_its_actual_value_whatever_the_file_says() -> None:
    config, _ = BrokerConfig.parse(
        {"create.topic.policy.class.name": "x.Y", "inter.broker.protocol.version": "3.0"}
    )
    entries = broker_entries(BrokerLayers({}, {}, {**config.originals, **config.without_effect}))
    for name, value in (
        ("create.topic.policy.class.name", None),
        ("inter.broker.protocol.version", "4.3-IV0"),
    ):
        found = entry(entries, name)
        assert (found.value, found.source, found.read_only) == (value, ConfigSource.DEFAULT_CONFIG, True)


def test_advertised_listeners_shows_the_addresses_that_clients_get() -> None:
    derived = {"advertised.listeners": "PLAINTEXT://h:1"}
    for static, value, source in (
        ({}, "PLAINTEXT://h:1", ConfigSource.DEFAULT_CONFIG),
        ({"listeners": "PLAINTEXT://:1"}, "PLAINTEXT://h:1", ConfigSource.STATIC_BROKER_CONFIG),
        ({"advertised.listeners": "A://x:2"}, "A://x:2", ConfigSource.STATIC_BROKER_CONFIG),
    ):
        found = entry(broker_entries(BrokerLayers({}, {}, static, derived)), "advertised.listeners")
        assert (found.value, found.source) == (value, source)


def test_stored_values_that_cannot_be_used_do_not_count_and_the_others_do() -> None:
    stored = {
        "max.connections": "0",
        "max.connections.per.ip": "0",
        "listener.name.plaintext.max.connections": "0",
        "log.retention.ms": "many",
        "num.replica.fetchers": "3",
    }
    config, faults = usable(BrokerConfig(), stored)
    assert config is not None
    assert (config.max_connections, config.max_connections_per_ip, config.num_replica_fetchers) == (
        INT_MAX,
        INT_MAX,
        3,
    )
    assert sorted(fault.name for fault in faults) == sorted(stored.keys() - {"num.replica.fetchers"})


def test_values_that_contradict_each_other_leave_the_configuration_as_it_is() -> None:
    config, faults = usable(BrokerConfig(), {"log.cleaner.threads": "1000"})
    assert config is None
    assert [fault.name for fault in faults] == ["log.cleaner.dedupe.buffer.size"]


def test_a_client_cannot_shut_itself_out() -> None:
    config, _ = BrokerConfig.parse(
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "10.0.0.1:2"}
    )
    check_not_shut_out("10.0.0.1", config)
    with pytest.raises(ApiError, match=r"overrides=10\.0\.0\.2:1") as error:
        check_not_shut_out("10.0.0.2", config)
    assert error.value.code == ErrorCode.INVALID_REQUEST


def test_values_that_kafkas_tools_stored_as_they_were_typed_are_shown_in_one_spelling() -> None:
    typed = {"cleanup.policy": "delete, compact", "retention.ms": " 100000 ", "preallocate": "False"}
    shown = {found.name: found.value for found in topic_entries(typed, NOTHING) if found.name in typed}
    assert shown == {"cleanup.policy": "delete,compact", "retention.ms": "100000", "preallocate": "false"}
