"""Rules 76-88: topics, configs, records and the cluster, as administrators see them."""

import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from conformance.topics import (
    REQUEST_TIMEOUT_MS,
    create_topic_over,
    list_offset,
    metadata_of,
    new_topic,
    produce_values,
)
from conformance.wire import Wire, unique_name
from felice.protocol.errors import ErrorCode
from felice.protocol.messages import alter_configs, incremental_alter_configs
from felice.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from felice.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from felice.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from felice.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from felice.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from felice.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from felice.protocol.messages.describe_acls import DescribeAclsRequest
from felice.protocol.messages.describe_cluster import DescribeClusterRequest
from felice.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from felice.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from felice.protocol.messages.list_config_resources import ListConfigResourcesRequest
from felice.protocol.messages.metadata import MetadataRequest
from waiting import wait_until

TOPIC, BROKER = 2, 4
DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT = 1, 4, 5
SET, DELETE, APPEND, SUBTRACT = range(4)
INT_TYPE, LONG_TYPE, LIST_TYPE = 3, 5, 7
OPERATIONS_NOT_ASKED = -2147483648


def creatable(name: str, partitions: int = 1, replication: int = 1, **configs: str) -> CreatableTopic:
    rows = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replication, configs=rows)


def create(wire: Wire, *topics: CreatableTopic, version: int = 7, validate_only: bool = False) -> list[Any]:
    asked = CreateTopicsRequest(
        topics=list(topics), timeout_ms=REQUEST_TIMEOUT_MS, validate_only=validate_only
    )
    rows: list[Any] = wire.ask(asked, version).topics
    return rows


def errors_of(rows: Sequence[Any]) -> dict[str, ErrorCode]:
    return {row.name: ErrorCode(row.error_code) for row in rows}


def exists(wire: Wire, topic: str) -> bool:
    listed = wire.ask(MetadataRequest(topics=None), 12).topics
    return topic in [row.name for row in listed]


def describe(
    wire: Wire, kind: int, name: str, keys: list[str] | None = None, version: int = 4, synonyms: bool = True
) -> Any:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    asked = DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)
    return wire.ask(asked, version).results[0]


def config_of(wire: Wire, topic: str, key: str) -> Any:
    (row,) = describe(wire, TOPIC, topic, [key]).configs
    return row


def node_id(wire: Wire) -> str:
    return str(wire.ask(MetadataRequest(topics=[]), 12).brokers[0].node_id)


def alter(
    wire: Wire,
    topic: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
    kind: int = TOPIC,
) -> Any:
    rows = [
        incremental_alter_configs.AlterableConfig(name=name, config_operation=operation, value=value)
        for name, operation, value in changes
    ]
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind, resource_name=topic, configs=rows
    )
    asked = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )
    return wire.ask(asked, 1).responses[0]


@pytest.mark.parametrize("version", [2, 3, 4, 5, 6, 7])
def test_minus_one_asks_for_the_brokers_defaults(wire: Wire, version: int) -> None:
    """76: -1 means the default of partitions or replicas. Clients send it from v4 on, Kafka accepts it before."""
    topic = unique_name("defaults")
    (row,) = create(wire, creatable(topic, -1, -1), version=version)
    assert row.error_code == 0
    wait_until(lambda: len(metadata_of(wire, topic).partitions) == 1)


def test_the_creation_response_describes_the_topic(wire: Wire) -> None:
    """77: partitions, replicas and every effective config from v5, the id from v7."""
    topic = unique_name("told")
    (row,) = create(wire, creatable(topic, 3, 1, retention_ms="12345"))
    assert (row.error_code, row.num_partitions, row.replication_factor) == (0, 3, 1)
    configs = {config.name: (config.value, config.config_source) for config in row.configs}
    assert configs["retention.ms"] == ("12345", DYNAMIC_TOPIC)
    assert configs["segment.bytes"] == ("1073741824", DEFAULT)
    assert len(configs) > 20
    wait_until(lambda: metadata_of(wire, topic).error_code == 0)
    assert metadata_of(wire, topic).topic_id == row.topic_id != uuid.UUID(int=0)


def test_broker_configs_are_described(wire: Wire) -> None:
    """78: each row has its source and type; num.partitions is among them."""
    result = describe(wire, BROKER, node_id(wire))
    configs = {row.name: row for row in result.configs}
    assert result.error_code == 0
    assert (configs["num.partitions"].value, configs["num.partitions"].config_type) == ("1", INT_TYPE)
    assert configs["offsets.topic.num.partitions"].value == "4"
    assert configs["offsets.topic.num.partitions"].config_source == STATIC_BROKER
    assert len(configs) > 50


def test_topic_configs_have_sources_synonyms_and_types(wire: Wire) -> None:
    """78: the synonym of a default is the broker option that gives it."""
    topic = new_topic(wire)
    row = config_of(wire, topic, "retention.ms")
    assert (row.value, row.config_source, row.config_type) == ("604800000", DEFAULT, LONG_TYPE)
    row = config_of(wire, topic, "segment.bytes")
    assert [(synonym.name, synonym.source) for synonym in row.synonyms] == [("log.segment.bytes", DEFAULT)]
    assert config_of(wire, topic, "cleanup.policy").config_type == LIST_TYPE


def test_a_value_equal_to_the_default_is_still_the_topics_own(wire: Wire) -> None:
    """78: a topic's own value has the source DYNAMIC_TOPIC and is the first of its synonyms."""
    topic = new_topic(wire)
    assert alter(wire, topic, ("retention.ms", SET, "604800000")).error_code == 0
    wait_until(lambda: config_of(wire, topic, "retention.ms").config_source == DYNAMIC_TOPIC)
    first = config_of(wire, topic, "retention.ms").synonyms[0]
    assert (first.name, first.value, first.source) == ("retention.ms", "604800000", DYNAMIC_TOPIC)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_version_describes_alike(wire: Wire, version: int) -> None:
    """78: types only from v3."""
    topic = new_topic(wire, retention_ms=1234)
    (row,) = describe(wire, TOPIC, topic, ["retention.ms"], version).configs
    assert (row.value, row.config_source, row.is_sensitive) == ("1234", DYNAMIC_TOPIC, False)


def test_describing_an_unknown_resource_is_refused(wire: Wire) -> None:
    """78, 85: each resource has its own error."""
    good, absent = new_topic(wire), unique_name("absent")
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None)
        for name in (good, absent, "bad name")
    ]
    results = wire.ask(DescribeConfigsRequest(resources=resources), 4).results
    assert {row.resource_name: row.error_code for row in results} == {
        good: 0,
        absent: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "soon"),
        ("cleanup.policy", "shred"),
        ("segment.bytes", "-4"),
        ("compression.type", "brotli"),
        ("min.insync.replicas", "0"),
        ("no.such.config", "1"),
    ],
)
def test_an_invalid_value_is_reported_for_its_resource(wire: Wire, name: str, value: str) -> None:
    """79: INVALID_CONFIG with a message, in creation and alteration alike; the others are changed."""
    topic = new_topic(wire)
    row = alter(wire, topic, (name, SET, value))
    assert row.error_code == ErrorCode.INVALID_CONFIG
    assert row.error_message
    bad, good = unique_name("bad"), unique_name("good")
    wrong = creatable(bad)
    wrong.configs = [CreatableTopicConfig(name=name, value=value)]
    assert errors_of(create(wire, wrong, creatable(good))) == {
        bad: ErrorCode.INVALID_CONFIG,
        good: ErrorCode.NONE,
    }
    assert not exists(wire, bad)


def test_alter_accepts_the_output_of_describe(wire: Wire) -> None:
    """80: AlterConfigs accepts the unchanged output of DescribeConfigs."""
    topic = new_topic(wire, retention_ms=1234)
    described = describe(wire, TOPIC, topic).configs
    rows = [alter_configs.AlterableConfig(name=row.name, value=row.value) for row in described]
    resource = alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=rows)
    asked = alter_configs.AlterConfigsRequest(resources=[resource])
    assert wire.ask(asked, 2).responses[0].error_code == 0
    assert config_of(wire, topic, "retention.ms").value == "1234"


def test_alter_configs_replaces_everything(wire: Wire) -> None:
    """80: an option that is not named returns to its default."""
    topic = new_topic(wire, retention_ms=1234, segment_ms=5000)
    rows = [alter_configs.AlterableConfig(name="segment.ms", value="6000")]
    resource = alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=rows)
    for version in (0, 1, 2):
        asked = alter_configs.AlterConfigsRequest(resources=[resource])
        assert wire.ask(asked, version).responses[0].error_code == 0
    wait_until(lambda: config_of(wire, topic, "retention.ms").config_source == DEFAULT)
    assert config_of(wire, topic, "segment.ms").value == "6000"


def test_incremental_operations(wire: Wire) -> None:
    """81: set, append, subtract, delete; delete ignores its value."""
    topic = new_topic(wire)
    for operation, value, expected in (
        (SET, "delete", "delete"),
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (DELETE, "whatever", "delete"),
    ):
        assert alter(wire, topic, ("cleanup.policy", operation, value)).error_code == 0
        wait_until(lambda expected=expected: config_of(wire, topic, "cleanup.policy").value == expected)
    assert config_of(wire, topic, "cleanup.policy").config_source == DEFAULT


def test_one_change_leaves_the_others(wire: Wire) -> None:
    """81: other options keep their values."""
    topic = new_topic(wire, retention_ms=1234)
    assert alter(wire, topic, ("segment.ms", SET, "6000")).error_code == 0
    wait_until(lambda: config_of(wire, topic, "segment.ms").value == "6000")
    assert config_of(wire, topic, "retention.ms").value == "1234"


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_only_lists_take_append_and_subtract(wire: Wire, operation: int) -> None:
    """81: INVALID_CONFIG for options that are no lists."""
    row = alter(wire, new_topic(wire), ("retention.ms", operation, "1"))
    assert row.error_code == ErrorCode.INVALID_CONFIG


def test_a_config_named_twice_is_an_invalid_request(wire: Wire) -> None:
    """81: within one resource."""
    row = alter(wire, new_topic(wire), ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    assert row.error_code == ErrorCode.INVALID_REQUEST


def test_altering_an_unknown_resource_is_refused(wire: Wire) -> None:
    """79, 85: UNKNOWN_TOPIC_OR_PARTITION."""
    row = alter(wire, unique_name("absent"), ("retention.ms", SET, "1"))
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_broker_config_can_be_changed_while_it_runs(wire: Wire) -> None:
    """81: the override is set, and removed."""
    broker = node_id(wire)
    assert alter(wire, broker, ("log.index.interval.bytes", SET, "8192"), kind=BROKER).error_code == 0
    wait_until(
        lambda: describe(wire, BROKER, broker, ["log.index.interval.bytes"]).configs[0].value == "8192"
    )
    assert alter(wire, broker, ("log.index.interval.bytes", DELETE, None), kind=BROKER).error_code == 0
    wait_until(
        lambda: describe(wire, BROKER, broker, ["log.index.interval.bytes"]).configs[0].value == "4096"
    )


@pytest.mark.parametrize(
    ("name", "value"), [("log.retention.ms", "soon"), ("message.max.bytes", "-1"), ("log.segment.bytes", "5")]
)
def test_a_bad_value_of_a_broker_config_is_an_invalid_request(wire: Wire, name: str, value: str) -> None:
    """79: INVALID_CONFIG is for topics."""
    row = alter(wire, node_id(wire), (name, SET, value), kind=BROKER)
    assert row.error_code == ErrorCode.INVALID_REQUEST
    assert name in row.error_message


def test_there_is_no_configuration_of_all_topics(wire: Wire) -> None:
    """79: the empty name means all brokers; it is no topic."""
    assert alter(wire, "", ("retention.ms", SET, "5")).error_code == ErrorCode.INVALID_REQUEST
    resource = alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name="", configs=[])
    replaced = wire.ask(alter_configs.AlterConfigsRequest(resources=[resource]), 2).responses[0]
    assert replaced.error_code == ErrorCode.INVALID_REQUEST


def test_a_read_only_broker_config_is_refused(wire: Wire) -> None:
    """79: INVALID_REQUEST or INVALID_CONFIG, and nothing changes."""
    row = alter(wire, node_id(wire), ("num.partitions", SET, "7"), kind=BROKER)
    assert row.error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG)
    assert describe(wire, BROKER, node_id(wire), ["num.partitions"]).configs[0].value == "1"


def test_validate_only_changes_nothing(wire: Wire) -> None:
    """82: all checks are made."""
    topic, existing = unique_name("checked"), new_topic(wire)
    checked = [creatable(topic, 2), creatable("bad name"), creatable(existing)]
    assert errors_of(create(wire, *checked, validate_only=True)) == {
        topic: ErrorCode.NONE,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        existing: ErrorCode.TOPIC_ALREADY_EXISTS,
    }
    assert not exists(wire, topic)
    assert alter(wire, existing, ("retention.ms", SET, "1"), validate_only=True).error_code == 0
    refused = alter(wire, existing, ("retention.ms", SET, "soon"), validate_only=True)
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert config_of(wire, existing, "retention.ms").config_source == DEFAULT
    assert grow(wire, existing, 5, validate_only=True).error_code == 0
    assert grow(wire, existing, 1, validate_only=True).error_code == ErrorCode.INVALID_PARTITIONS
    assert len(metadata_of(wire, existing).partitions) == 1


def grow(
    wire: Wire,
    topic: str,
    count: int,
    validate_only: bool = False,
    assignments: list[CreatePartitionsAssignment] | None = None,
) -> Any:
    wanted = CreatePartitionsTopic(name=topic, count=count, assignments=assignments)
    asked = CreatePartitionsRequest(
        topics=[wanted], timeout_ms=REQUEST_TIMEOUT_MS, validate_only=validate_only
    )
    return wire.ask(asked, 3).results[0]


def test_partitions_can_only_be_added(wire: Wire) -> None:
    """82, 85: otherwise INVALID_PARTITIONS; unknown topics have an error."""
    topic = new_topic(wire)
    assert grow(wire, topic, 3).error_code == 0
    wait_until(lambda: len(metadata_of(wire, topic).partitions) == 3)
    wait_until(lambda: list_offset(wire, topic, -1, partition=2).error_code == 0)
    assert produce_values(wire, topic, [b"a"], partition=2) == 0
    for count in (3, 2, 0, -1):
        assert grow(wire, topic, count).error_code == ErrorCode.INVALID_PARTITIONS
    assert grow(wire, unique_name("absent"), 2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wrong = [CreatePartitionsAssignment(broker_ids=[999])]
    assert grow(wire, topic, 4, assignments=wrong).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def delete_records(wire: Wire, topic: str, offset: int, partition: int = 0) -> Any:
    wanted = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
    asked = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=wanted)], timeout_ms=REQUEST_TIMEOUT_MS
    )
    return wire.ask(asked, 2).topics[0].partitions[0]


def test_delete_records_moves_the_start_only(wire: Wire) -> None:
    """83: -1 is the high watermark; beyond it is out of range."""
    topic = new_topic(wire)
    produce_values(wire, topic, [b"a", b"b", b"c"])
    row = delete_records(wire, topic, 2)
    assert (row.error_code, row.low_watermark) == (0, 2)
    assert (list_offset(wire, topic, -2).offset, list_offset(wire, topic, -1).offset) == (2, 3)
    assert delete_records(wire, topic, 1).low_watermark == 2
    assert delete_records(wire, topic, 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete_records(wire, topic, -1).low_watermark == 3
    assert (list_offset(wire, topic, -2).offset, list_offset(wire, topic, -1).offset) == (3, 3)
    assert delete_records(wire, "absent", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce_values(wire, topic, [b"d"]) == 3


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a b", "a/b", "ä", "a" * 250, "a\0b", "a:b", "../../etc/passwd"]
)
def test_bad_topic_names_are_refused(wire: Wire, name: str) -> None:
    """84: 1-249 of letters, digits, dot, underscore and dash."""
    (row,) = create(wire, creatable(name))
    assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("length", [1, 249])
def test_names_of_either_extreme_length_are_taken(wire: Wire, length: int) -> None:
    """84: a topic with such a name works."""
    name = uuid.uuid4().hex[:1] if length == 1 else uuid.uuid4().hex + "x" * (length - 32)
    if not exists(wire, name):
        create_topic_over(wire, name)
    assert produce_values(wire, name, [b"a"]) >= 0


def test_names_that_differ_in_dot_and_underscore_collide(wire: Wire) -> None:
    """84: INVALID_TOPIC_EXCEPTION for the second."""
    stem = uuid.uuid4().hex
    create_topic_over(wire, f"{stem}.a_b")
    assert create(wire, creatable(f"{stem}_a.b"))[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_one_bad_topic_does_not_fail_the_request(wire: Wire) -> None:
    """85: and a name that comes twice is an invalid request for that name."""
    good, twice, existing = unique_name("good"), unique_name("twice"), new_topic(wire)
    topics = [
        creatable(good),
        creatable("bad name"),
        creatable(twice),
        creatable(twice),
        creatable(existing),
        creatable(f"{good}-0", 0),
        creatable(f"{good}-rf", 1, 5),
        creatable(f"{good}-rf0", 1, 0),
    ]
    assert errors_of(create(wire, *topics)) == {
        good: ErrorCode.NONE,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        twice: ErrorCode.INVALID_REQUEST,
        existing: ErrorCode.TOPIC_ALREADY_EXISTS,
        f"{good}-0": ErrorCode.INVALID_PARTITIONS,
        f"{good}-rf": ErrorCode.INVALID_REPLICATION_FACTOR,
        f"{good}-rf0": ErrorCode.INVALID_REPLICATION_FACTOR,
    }
    assert exists(wire, good)
    assert not exists(wire, twice)


def test_replicas_may_be_assigned_by_hand(wire: Wire) -> None:
    """85: partitions and replicas must be -1 then, and the brokers must exist."""
    here, topic = int(node_id(wire)), unique_name("placed")
    placed = creatable(topic, -1, -1)
    placed.assignments = [CreatableReplicaAssignment(partition_index=at, broker_ids=[here]) for at in (0, 1)]
    wrong = creatable(f"{topic}-wrong", -1, -1)
    wrong.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[here + 77])]
    both = creatable(f"{topic}-both", 1, 1)
    both.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[here])]
    assert errors_of(create(wire, placed, wrong, both)) == {
        topic: ErrorCode.NONE,
        f"{topic}-wrong": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"{topic}-both": ErrorCode.INVALID_REQUEST,
    }
    wait_until(lambda: len(metadata_of(wire, topic).partitions) == 2)


def test_a_deleted_topic_disappears_and_can_be_created_again(wire: Wire) -> None:
    """86: the new topic has nothing of the old one."""
    topic = new_topic(wire)
    produce_values(wire, topic, [b"a", b"b"])
    answer = wire.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=REQUEST_TIMEOUT_MS), 5)
    assert answer.responses[0].error_code == 0
    wait_until(lambda: not exists(wire, topic))
    create_topic_over(wire, topic)
    assert list_offset(wire, topic, -1).offset == 0
    assert produce_values(wire, topic, [b"c"]) == 0


def test_a_topic_named_twice_is_not_deleted(wire: Wire) -> None:
    """86: by its name, by its id, or by both; the response has one row."""
    by_name, by_id, by_both, other = (new_topic(wire) for _ in range(4))
    id_of_id, id_of_both = metadata_of(wire, by_id).topic_id, metadata_of(wire, by_both).topic_id
    topics = [
        DeleteTopicState(name=by_name),
        DeleteTopicState(name=by_name),
        DeleteTopicState(name=None, topic_id=id_of_id),
        DeleteTopicState(name=None, topic_id=id_of_id),
        DeleteTopicState(name=by_both),
        DeleteTopicState(name=None, topic_id=id_of_both),
        DeleteTopicState(name=other),
        DeleteTopicState(name=other, topic_id=id_of_id),
        DeleteTopicState(name=None),
    ]
    rows = wire.ask(DeleteTopicsRequest(topics=topics, timeout_ms=REQUEST_TIMEOUT_MS), 6).responses
    assert sorted((row.name or str(row.topic_id), row.error_code) for row in rows) == sorted(
        [
            (by_name, ErrorCode.INVALID_REQUEST),
            (str(id_of_id), ErrorCode.INVALID_REQUEST),
            (by_both, ErrorCode.INVALID_REQUEST),
            (other, 0),
            (other, ErrorCode.INVALID_REQUEST),
            (str(uuid.UUID(int=0)), ErrorCode.INVALID_REQUEST),
        ]
    )
    wait_until(lambda: not exists(wire, other))
    assert exists(wire, by_name) and exists(wire, by_id) and exists(wire, by_both)


def test_topics_are_deleted_by_name_or_id_each_with_its_error(wire: Wire) -> None:
    """85, 86: v6."""
    by_name, by_id = new_topic(wire), new_topic(wire)
    topic_id = metadata_of(wire, by_id).topic_id
    unknown_id = uuid.uuid4()
    topics = [
        DeleteTopicState(name=by_name),
        DeleteTopicState(name=None, topic_id=topic_id),
        DeleteTopicState(name="absent"),
        DeleteTopicState(name=None, topic_id=unknown_id),
    ]
    rows = wire.ask(DeleteTopicsRequest(topics=topics, timeout_ms=REQUEST_TIMEOUT_MS), 6).responses
    assert sorted((row.name or str(row.topic_id), row.error_code) for row in rows) == sorted(
        [
            (by_name, 0),
            (by_id, 0),
            ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (str(unknown_id), ErrorCode.UNKNOWN_TOPIC_ID),
        ]
    )
    wait_until(lambda: not exists(wire, by_name) and not exists(wire, by_id))


def test_the_controller_is_a_live_broker_and_answers(wire: Wire) -> None:
    """87: any broker accepts requests for the controller."""
    answer = wire.ask(MetadataRequest(topics=[]), 12)
    assert answer.controller_id in [row.node_id for row in answer.brokers]
    assert create(wire, creatable(unique_name("controlled")))[0].error_code == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_cluster_is_described(wire: Wire, version: int) -> None:
    """88: DescribeCluster lists the brokers that are not fenced."""
    answer = wire.ask(DescribeClusterRequest(), version)
    metadata = wire.ask(MetadataRequest(topics=[]), 12)
    assert (answer.error_code, answer.cluster_id) == (0, metadata.cluster_id)
    assert [(row.broker_id, row.host, row.port) for row in answer.brokers] == [
        (row.node_id, row.host, row.port) for row in metadata.brokers
    ]
    assert not any(row.is_fenced for row in answer.brokers)
    assert answer.cluster_authorized_operations == OPERATIONS_NOT_ASKED
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert wire.ask(asked, version).cluster_authorized_operations > 0


@pytest.mark.parametrize(
    ("endpoint", "error"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_only_brokers_are_described_by_a_broker(wire: Wire, endpoint: int, error: ErrorCode) -> None:
    """88: endpoint type 1."""
    assert wire.ask(DescribeClusterRequest(endpoint_type=endpoint), 1).error_code == error


def test_topic_partitions_are_described_page_by_page(wire: Wire) -> None:
    """85: DescribeTopicPartitions, with a cursor to the next page."""
    topic = new_topic(wire, partitions=5)
    names = [TopicRequest(name=topic)]
    answer = wire.ask(DescribeTopicPartitionsRequest(topics=names, response_partition_limit=2), 0)
    assert [row.partition_index for row in answer.topics[0].partitions] == [0, 1]
    assert answer.next_cursor == Cursor(topic_name=topic, partition_index=2)
    rest = DescribeTopicPartitionsRequest(topics=names, cursor=answer.next_cursor)
    answer = wire.ask(rest, 0)
    assert [row.partition_index for row in answer.topics[0].partitions] == [2, 3, 4]
    assert answer.next_cursor is None
    absent = wire.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="absent")]), 0)
    assert absent.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def config_resources(wire: Wire, *kinds: int, version: int = 1) -> Any:
    return wire.ask(ListConfigResourcesRequest(resource_types=list(kinds)), version)


def test_resources_with_configs_are_listed_by_type(wire: Wire) -> None:
    topic = new_topic(wire)
    broker_id = str(wire.ask(DescribeClusterRequest(), 0).brokers[0].broker_id)
    found = [(r.resource_type, r.resource_name) for r in config_resources(wire).config_resources]
    assert (TOPIC, topic) in found
    assert (BROKER, broker_id) in found
    only = [
        (r.resource_type, r.resource_name) for r in config_resources(wire, BROKER, BROKER).config_resources
    ]
    assert only == [(BROKER, broker_id)]


def test_the_first_version_lists_client_metrics_alone(wire: Wire) -> None:
    new_topic(wire)
    answer = config_resources(wire, version=0)
    assert (answer.error_code, answer.config_resources) == (0, [])


def test_an_unknown_type_of_config_is_refused(wire: Wire) -> None:
    assert config_resources(wire, TOPIC, 3).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_broker_without_an_authorizer_has_no_access_rules(wire: Wire, version: int) -> None:
    """MirrorMaker sends this request, and treats the answer as "nothing to copy"."""
    described = wire.ask(
        DescribeAclsRequest(resource_type_filter=2, pattern_type_filter=1, operation=1, permission_type=1),
        version,
    )
    told = "No Authorizer is configured on the broker"
    assert (described.error_code, described.error_message) == (ErrorCode.SECURITY_DISABLED, told)
    assert described.resources == []
    rule = AclCreation(
        resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
    )
    created = wire.ask(CreateAclsRequest(creations=[rule, rule]), version)
    told = "No Authorizer is configured."
    refused = [(ErrorCode.SECURITY_DISABLED, told)] * 2
    assert [(row.error_code, row.error_message) for row in created.results] == refused
    some = DeleteAclsFilter(resource_type_filter=2, operation=1, permission_type=1)
    deleted = wire.ask(DeleteAclsRequest(filters=[some, some]), version)
    assert [(row.error_code, row.error_message) for row in deleted.filter_results] == refused
    assert [row.matching_acls for row in deleted.filter_results] == [[], []]
