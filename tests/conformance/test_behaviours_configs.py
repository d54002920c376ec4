"""Corner cases of rules 76-82: tiered storage, options without effect, unknown names, defaults of all brokers."""

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.targets import IS_APACHE, Target
from conformance.test_behaviours_admin import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    SUBTRACT,
    alter,
    config_of,
    creatable,
    create,
    describe,
    errors_of,
    node_id,
)
from conformance.topics import new_topic
from conformance.wire import Wire, unique_name
from felice.config import Kind
from felice.protocol.errors import ErrorCode
from felice.protocol.messages import alter_configs
from felice.protocol.messages.create_topics import CreatableTopicConfig
from felice.protocol.messages.describe_configs import ResourceType
from waiting import wait_until

DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC_BROKER, DEFAULT = 2, 3, 4, 5
UNKNOWN_TYPE = 0
ALL_BROKERS = ""
TIERED = {
    "remote.storage.enable": "false",
    "local.retention.ms": "-2",
    "local.retention.bytes": "-2",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
}


@pytest.fixture(scope="module")
def own_broker() -> Iterator[Target]:
    """A broker whose configuration no other test changes."""
    with Target() as target:
        yield target


@pytest.fixture
def own_wire(own_broker: Target) -> Iterator[Wire]:
    with own_broker.wire() as connection:
        yield connection


def broker_row(wire: Wire, resource: str, name: str) -> Any:
    return next((row for row in describe(wire, BROKER, resource).configs if row.name == name), None)


def create_with(wire: Wire, *configs: tuple[str, str | None]) -> Any:
    topic = creatable(unique_name("configured"))
    topic.configs = [CreatableTopicConfig(name=name, value=value) for name, value in configs]
    return create(wire, topic)[0]


def test_options_of_tiered_storage_are_described_at_their_defaults(wire: Wire) -> None:
    """78: tools copy whole configurations."""
    topic = new_topic(wire)
    for name, value in TIERED.items():
        row = config_of(wire, topic, name)
        assert (row.value, row.config_source, row.read_only) == (value, DEFAULT, False), name
    assert [found.name for found in config_of(wire, topic, "local.retention.ms").synonyms] == [
        "log.local.retention.ms"
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *TIERED.items(),
        ("local.retention.ms", "5"),
        ("local.retention.ms", "-1"),
        ("local.retention.bytes", "5"),
        ("remote.log.copy.disable", "true"),
        ("remote.log.delete.on.disable", "true"),
    ],
)
def test_options_of_tiered_storage_are_accepted_where_they_turn_nothing_on(
    wire: Wire, name: str, value: str
) -> None:
    """79: in creation and in alteration."""
    assert create_with(wire, (name, value)).error_code == 0
    topic = new_topic(wire)
    assert alter(wire, topic, (name, SET, value)).error_code == 0
    wait_until(lambda: config_of(wire, topic, name).config_source == 1)
    assert config_of(wire, topic, name).value == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("remote.storage.enable", "true"),
        ("local.retention.ms", "-3"),
        ("local.retention.bytes", "-3"),
        ("remote.log.copy.disable", "x"),
        ("retention.ms", "9" * 5000),
        ("min.cleanable.dirty.ratio", "9" * 5000),
        ("no.such." + "x" * 32_000, "1"),
    ],
)
def test_enabling_tiered_storage_and_invalid_values_are_refused(wire: Wire, name: str, value: str) -> None:
    """79: INVALID_CONFIG, however long the value and the name are."""
    assert create_with(wire, (name, value)).error_code == ErrorCode.INVALID_CONFIG
    assert alter(wire, new_topic(wire), (name, SET, value)).error_code == ErrorCode.INVALID_CONFIG
    assert node_id(wire)


def test_a_config_that_is_named_twice_in_a_creation_has_its_last_value(wire: Wire) -> None:
    """76: only null is refused in earlier values."""
    row = create_with(wire, ("retention.ms", "x"), ("retention.ms", "2"))
    assert row.error_code == 0
    assert [found.value for found in row.configs if found.name == "retention.ms"] == ["2"]
    refused = create_with(wire, ("retention.ms", None), ("retention.ms", "2"))
    assert refused.error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num.io.threads", "5"),
        ("num.network.threads", "3"),  # fewer than before would end connections of Kafka
        ("background.threads", "9"),
        ("max.connection.creation.rate", "100"),
        ("max.connections.per.ip.overrides", "127.0.0.9:5"),
        ("remote.log.reader.threads", "11"),
        ("num.recovery.threads.per.data.dir", "3"),
        ("log.local.retention.ms", "7000"),
    ],
)
@pytest.mark.parametrize("for_all", [False, True])
def test_options_that_kafka_changes_at_run_time_are_accepted_and_shown(
    own_wire: Wire, name: str, value: str, for_all: bool
) -> None:
    """81: also where they have no effect."""
    resource = ALL_BROKERS if for_all else node_id(own_wire)
    source = DYNAMIC_DEFAULT if for_all else DYNAMIC_BROKER
    assert alter(own_wire, resource, (name, SET, value), kind=BROKER).error_code == 0
    for described in (resource, node_id(own_wire)):
        wait_until(
            lambda described=described: (
                (found := broker_row(own_wire, described, name)) is not None
                and (found.value, found.config_source, found.read_only) == (value, source, False)
            )
        )
    assert alter(own_wire, resource, (name, DELETE, None), kind=BROKER).error_code == 0
    wait_until(lambda: broker_row(own_wire, ALL_BROKERS, name) is None)


@pytest.mark.parametrize("for_all", [False, True])
def test_an_unknown_option_is_accepted_and_its_value_is_not_shown(own_wire: Wire, for_all: bool) -> None:
    """81: the value could be a secret of a plugin, so it is not shown."""
    resource = ALL_BROKERS if for_all else node_id(own_wire)
    assert alter(own_wire, resource, ("foo.bar", SET, "7"), kind=BROKER).error_code == 0
    wait_until(lambda: broker_row(own_wire, resource, "foo.bar") is not None)
    row = broker_row(own_wire, resource, "foo.bar")
    assert (row.value, row.is_sensitive, row.read_only, row.config_type) == (None, True, True, UNKNOWN_TYPE)
    assert row.config_source == (DYNAMIC_DEFAULT if for_all else DYNAMIC_BROKER)
    assert [(found.value, found.source) for found in row.synonyms] == [(None, row.config_source)]
    assert alter(own_wire, resource, ("foo.bar", DELETE, None), kind=BROKER).error_code == 0
    wait_until(lambda: broker_row(own_wire, resource, "foo.bar") is None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num.io.threads", "0"),
        ("num.io.threads", "abc"),
        ("max.connection.creation.rate", "-1"),
        ("socket.send.buffer.bytes", "5"),
        ("authorizer.class.name", "x"),
        ("num.partitions", "9" * 5000),
        ("max.connections", "9" * 30_000),
    ],
)
def test_options_that_kafka_fixes_at_the_start_cannot_be_changed(
    own_wire: Wire, name: str, value: str
) -> None:
    """79: INVALID_REQUEST."""
    row = alter(own_wire, node_id(own_wire), (name, SET, value), kind=BROKER)
    assert row.error_code == ErrorCode.INVALID_REQUEST
    assert name in row.error_message


def test_defaults_of_all_brokers_are_set_shown_and_taken_back(own_wire: Wire) -> None:
    """81, 82: the requests of `kafka-configs --entity-default`."""
    assert describe(own_wire, BROKER, ALL_BROKERS).error_code == 0
    assert alter(own_wire, ALL_BROKERS, ("max.connections", SET, "600"), kind=BROKER).error_code == 0
    wait_until(lambda: broker_row(own_wire, ALL_BROKERS, "max.connections") is not None)
    row = broker_row(own_wire, node_id(own_wire), "max.connections")
    assert (row.value, row.config_source) == ("600", DYNAMIC_DEFAULT)
    assert [(found.value, found.source) for found in row.synonyms] == [
        ("600", DYNAMIC_DEFAULT),
        ("2147483647", DEFAULT),
    ]
    refused = alter(own_wire, ALL_BROKERS, ("num.partitions", SET, "6"), kind=BROKER)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert alter(own_wire, ALL_BROKERS, ("max.connections", DELETE, None), kind=BROKER).error_code == 0
    wait_until(lambda: broker_row(own_wire, ALL_BROKERS, "max.connections") is None)


def test_doubles_are_printed_as_java_prints_them(wire: Wire) -> None:
    """78: tools compare texts."""
    row = broker_row(wire, node_id(wire), "log.cleaner.io.max.bytes.per.second")
    assert row.value == "1.7976931348623157E308"


def test_several_topics_with_the_same_fault_each_have_their_error(wire: Wire) -> None:
    """79: the other topics are created."""
    bad, good = creatable(unique_name("bad")), creatable(unique_name("good"))
    bad.configs = [CreatableTopicConfig(name="retention.ms", value="9" * 30_000)]
    assert errors_of(create(wire, bad, good)) == {bad.name: ErrorCode.INVALID_CONFIG, good.name: 0}


@pytest.mark.felice_only
def test_consoles_find_addresses_and_the_version(own_broker: Target, own_wire: Wire) -> None:
    """Kafka shows no advertised.listeners if none are set, and has no protocol version option since 4.0."""
    broker = node_id(own_wire)
    addresses = broker_row(own_wire, broker, "advertised.listeners")
    assert (addresses.value, addresses.read_only) == (f"PLAINTEXT://{own_broker.bootstrap}", True)
    assert addresses.config_source == STATIC_BROKER
    version = broker_row(own_wire, broker, "inter.broker.protocol.version")
    assert (version.value, version.read_only) == ("4.3-IV0", True)


@pytest.mark.felice_only
@pytest.mark.parametrize(
    "name",
    ["sasl.enabled.mechanisms", "ssl.client.auth", "cordoned.log.dirs", "listener.name.x.ssl.client.auth"],
)
def test_options_that_enable_missing_features_are_refused(own_wire: Wire, name: str) -> None:
    """Kafka accepts these options."""
    row = alter(own_wire, node_id(own_wire), (name, SET, "PLAIN"), kind=BROKER)
    assert row.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.felice_only
def test_an_unknown_option_with_a_long_name_is_refused(own_wire: Wire) -> None:
    """Kafka stores such a name."""
    row = alter(own_wire, node_id(own_wire), ("x" * 32_000, SET, "1"), kind=BROKER)
    assert row.error_code == ErrorCode.INVALID_REQUEST
    assert len(row.error_message) < 1000


TYPED = [
    ("cleanup.policy", " compact , delete ", "compact,delete"),
    ("cleanup.policy", "", ""),
    ("retention.ms", " +0100000 ", "100000"),
    ("retention.bytes", "\t-1\n", "-1"),
    ("segment.bytes", "1048577 ", "1048577"),
    ("min.cleanable.dirty.ratio", "1", "1.0"),
    ("min.cleanable.dirty.ratio", " .25f", "0.25"),
    ("unclean.leader.election.enable", "True", "true"),
    ("unclean.leader.election.enable", " FALSE ", "false"),
    ("compression.type", " gzip", "gzip"),
    ("message.timestamp.type", "LogAppendTime ", "LogAppendTime"),
    ("leader.replication.throttled.replicas", " 0:1 , 0:2", "0:1,0:2"),
]


@pytest.mark.parametrize(("name", "typed", "shown"), TYPED)
def test_values_of_topics_are_shown_in_kafkas_spelling(wire: Wire, name: str, typed: str, shown: str) -> None:
    """76, 78: from a creation and from an alteration."""
    created = create_with(wire, (name, typed))
    assert created.error_code == 0
    if not IS_APACHE:  # there as it was typed
        assert [found.value for found in created.configs if found.name == name] == [shown]
    topic = new_topic(wire)
    assert alter(wire, topic, (name, SET, typed)).error_code == 0
    for described in (created.name, topic):
        wait_until(lambda described=described: config_of(wire, described, name).config_source == 1)
        row = config_of(wire, described, name)
        assert (row.value, row.synonyms[0].value) == (shown, shown)


@pytest.mark.parametrize(
    ("name", "typed", "shown"),
    [
        ("log.cleanup.policy", " compact , delete ", "compact,delete"),
        ("log.retention.ms", " +5000 ", "5000"),
        ("unclean.leader.election.enable", "TRUE", "true"),
        ("log.cleaner.min.cleanable.ratio", " 1", "1.0"),
        ("num.io.threads", "+8 ", "8"),
        pytest.param(
            "listener.name.plaintext.max.connections", " 0900", "900", marks=pytest.mark.felice_only
        ),
    ],
)
def test_dynamic_values_of_brokers_are_shown_in_kafkas_spelling(
    own_wire: Wire, name: str, typed: str, shown: str
) -> None:
    """81: a broker's own values, and those of all brokers."""
    for resource in (node_id(own_wire), ALL_BROKERS):
        assert alter(own_wire, resource, (name, SET, typed), kind=BROKER).error_code == 0
        wait_until(
            lambda resource=resource: (
                (row := broker_row(own_wire, resource, name)) is not None
                and row.config_source in (DYNAMIC_BROKER, DYNAMIC_DEFAULT)
            )
        )
        if not IS_APACHE:  # there as it was typed
            assert broker_row(own_wire, resource, name).value == shown
        assert broker_row(own_wire, node_id(own_wire), name).value == shown
        assert alter(own_wire, resource, (name, DELETE, None), kind=BROKER).error_code == 0
        wait_until(lambda: broker_row(own_wire, ALL_BROKERS, name) is None)


def test_values_of_the_file_are_shown_in_kafkas_spelling() -> None:
    """78: of the broker, and of its topics."""
    typed = {
        "log.cleanup.policy": "delete, compact",
        "log.retention.ms": " 100000 ",
        "unclean.leader.election.enable": "True",
        "log.cleaner.min.cleanable.ratio": "1",
        "auto.create.topics.enable": "FALSE",
    }
    with Target(typed) as target, target.wire() as wire:
        rows = {name: broker_row(wire, node_id(wire), name) for name in typed}
        assert {name: row.value for name, row in rows.items()} == {
            "log.cleanup.policy": "delete,compact",
            "log.retention.ms": "100000",
            "unclean.leader.election.enable": "true",
            "log.cleaner.min.cleanable.ratio": "1.0",
            "auto.create.topics.enable": "false",
        }
        assert [(found.name, found.source) for found in rows["log.retention.ms"].synonyms] == [
            ("log.retention.ms", STATIC_BROKER),
            ("log.retention.hours", DEFAULT),
        ]
        topic = new_topic(wire)
        for name, shown in (
            ("cleanup.policy", "delete,compact"),
            ("retention.ms", "100000"),
            ("min.cleanable.dirty.ratio", "1.0"),
        ):
            assert config_of(wire, topic, name).value == shown
        hours = [row for row in config_of(wire, topic, "retention.ms").synonyms if row.name.endswith("hours")]
        assert [(row.value, row.source) for row in hours] == [("168", DEFAULT)]


def test_client_metrics_are_shown_in_kafkas_spelling(wire: Wire) -> None:
    """78: lists and numbers."""
    name, kind = unique_name("metrics"), int(ResourceType.CLIENT_METRICS)
    typed = (("metrics", SET, " a. , b."), ("interval.ms", SET, " +500 "), ("match", SET, " client_id=x "))
    assert alter(wire, name, *typed, kind=kind).error_code == 0
    wait_until(lambda: any(row.value == "500" for row in describe(wire, kind, name).configs))
    shown = {row.name: row.value for row in describe(wire, kind, name).configs}
    assert shown == {"metrics": "a.,b.", "interval.ms": "500", "match": "client_id=x"}
    assert alter(wire, name, *((key, DELETE, None) for key, _, _ in typed), kind=kind).error_code == 0


def test_defaults_and_types_are_kafkas(wire: Wire) -> None:
    """78: tools choose their fields by them."""
    for name, value, kind in (
        ("max.connections.per.ip.overrides", "", Kind.STRING),
        ("sasl.oauthbearer.expected.audience", "", Kind.LIST),
        ("security.inter.broker.protocol", "PLAINTEXT", Kind.STRING),
        ("listener.security.protocol.map", None, Kind.STRING),
    ):
        row = broker_row(wire, node_id(wire), name)
        assert row.config_type == kind, name
        if value is not None:
            assert (row.value, row.config_source) == (value, DEFAULT), name


def test_what_is_appended_has_no_empty_item(own_wire: Wire) -> None:
    """79: nothing is taken away by an empty text, and nothing that is no list can be appended to."""
    topic, broker = new_topic(own_wire), node_id(own_wire)
    assert alter(own_wire, topic, ("cleanup.policy", APPEND, "")).error_code == ErrorCode.INVALID_CONFIG
    assert alter(own_wire, topic, ("cleanup.policy", SUBTRACT, "")).error_code == 0
    assert alter(own_wire, topic, ("cleanup.policy", APPEND, "delete,delete")).error_code == 0
    assert config_of(own_wire, topic, "cleanup.policy").value == "delete"
    for name in ("log.cleanup.policy", "metric.reporters"):
        refused = alter(own_wire, broker, (name, SET, "delete"), (name, DELETE, None), kind=BROKER)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        if name == "log.cleanup.policy":
            assert alter(own_wire, broker, (name, APPEND, ""), kind=BROKER).error_code == (
                ErrorCode.INVALID_REQUEST
            )
        assert alter(own_wire, broker, (name, SUBTRACT, ""), kind=BROKER).error_code == 0
        assert alter(own_wire, broker, (name, DELETE, None), kind=BROKER).error_code == 0
    row = alter(own_wire, broker, ("max.connections.per.ip.overrides", APPEND, "10.0.0.1:3"), kind=BROKER)
    assert row.error_code == ErrorCode.INVALID_CONFIG
    row = alter(own_wire, broker, ("log.retention.ms", SET, "0"), kind=BROKER)
    assert row.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.felice_only
def test_a_configuration_can_be_sent_back_as_it_was_typed(own_wire: Wire) -> None:
    """80: AlterConfigs ignores what cannot change if it is the value in force, however it is spelled."""
    typed = (("num.partitions", " +1 "), ("log.retention.ms", " 7000 "))
    rows = [alter_configs.AlterableConfig(name=name, value=value) for name, value in typed]
    resource = alter_configs.AlterConfigsResource(
        resource_type=BROKER, resource_name=node_id(own_wire), configs=rows
    )
    asked = alter_configs.AlterConfigsRequest(resources=[resource])
    (row,) = own_wire.ask(asked).responses
    assert row.error_code == 0
    wait_until(lambda: broker_row(own_wire, node_id(own_wire), "log.retention.ms").value == "7000")
    resource.configs = []
    assert own_wire.ask(asked).responses[0].error_code == 0
