"""Faults of a request that are reported before missing permissions, and the other way round, as Kafka orders them.

Found by `make differential ARGS=--rights`. Apache Kafka passes this module, too (FELICE_CONFORMANCE_TARGET=apache).
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from conformance.secured import Rule, Secured, describe_request, prepared, rows_of, secured
from conformance.topics import batch_of, create_topic_over
from conformance.wire import Wire
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from felice.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from felice.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from felice.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from felice.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from felice.protocol.messages.describe_topic_partitions import TopicRequest as NamedTopic
from felice.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from felice.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.protocol.messages.sasl_handshake import SaslHandshakeRequest
from felice.protocol.messages.sync_group import SyncGroupRequest
from felice.protocol.primitives import ZERO_UUID
from felice.records.batch import MAGIC_POSITION
from felice.security.acl import CLUSTER_NAME, Operation, ResourceType

UNKNOWN_KIND = 99
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("order") / "data") as found:
        prepared(found)
        yield found


@pytest.fixture
def client(broker: Secured) -> Wire:
    """A client without any permission."""
    broker.clear()
    return broker.client


def test_a_refused_list_of_reassignments_names_the_requested_partitions(client: Wire) -> None:
    asked = ListPartitionReassignmentsTopics(name="t", partition_indexes=[0])
    answer = client.ask(ListPartitionReassignmentsRequest(timeout_ms=1000, topics=[asked]))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    rows = [(topic.name, [row.partition_index for row in topic.partitions]) for topic in answer.topics]
    assert rows == [("t", [0])]


def test_an_invalid_topic_name_comes_before_the_permission_to_describe_producers(client: Wire) -> None:
    asked = [TopicRequest(name=name, partition_indexes=[0]) for name in ("", "t")]
    answer = client.ask(DescribeProducersRequest(topics=asked))
    codes = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
    assert codes == {"": ErrorCode.INVALID_TOPIC_EXCEPTION, "t": ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_a_topic_to_delete_that_has_a_name_and_an_id_is_an_invalid_request(client: Wire) -> None:
    both = DeleteTopicState(name="t", topic_id=UUID(int=7))
    asked = DeleteTopicsRequest(topics=[both], timeout_ms=1000)
    assert client.ask(asked, 6).responses[0].error_code == ErrorCode.INVALID_REQUEST


def test_a_client_that_may_describe_a_topic_learns_that_it_does_not_exist(
    broker: Secured, client: Wire
) -> None:
    asked = DeleteTopicsRequest(topic_names=["missing"], timeout_ms=1000)
    assert client.ask(asked, 1).responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    broker.grant(Rule(TOPIC, "missing", Operation.DESCRIBE), Rule(TOPIC, "t", Operation.DESCRIBE))
    assert client.ask(asked, 1).responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    exists = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
    assert client.ask(exists, 1).responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_all_operations_of_the_cluster_include_the_deletion_of_topics(broker: Secured, client: Wire) -> None:
    create_topic_over(broker.admin, "short-lived")
    asked = DeleteTopicsRequest(topic_names=["short-lived"], timeout_ms=60_000)
    broker.grant(Rule(ResourceType.CLUSTER, CLUSTER_NAME, Operation.ALTER))
    assert client.ask(asked, 5).responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    broker.grant(Rule(ResourceType.CLUSTER, CLUSTER_NAME, Operation.ALL))
    assert client.ask(asked, 5).responses[0].error_code == 0


def test_a_missing_protocol_comes_before_the_permission_of_the_group(client: Wire) -> None:
    def code(protocol_name: str | None, version: int) -> int:
        asked = SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id="m",
            protocol_type="consumer",
            protocol_name=protocol_name,
        )
        return int(client.ask(asked, version).error_code)

    assert code(None, 5) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code("range", 5) == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert code(None, 4) == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_missing_group_comes_before_the_permissions_of_topics(broker: Secured, client: Wire) -> None:
    broker.grant(*(Rule(GROUP, name, Operation.DELETE) for name in ("missing", "g")))
    topic = OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    missing = client.ask(OffsetDeleteRequest(group_id="missing", topics=[topic]))
    assert (missing.error_code, missing.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    found = client.ask(OffsetDeleteRequest(group_id="g", topics=[topic]))
    assert found.error_code == 0
    assert found.topics[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_offsets_for_no_topic_id_are_refused_as_unknown(broker: Secured, client: Wire) -> None:
    broker.grant(Rule(GROUP, "g", Operation.READ))
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequestTopic(topic_id=ZERO_UUID, partitions=[row])
    answer = client.ask(OffsetCommitRequest(group_id="g", topics=[topic]), 10)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_broken_transactional_batch_needs_the_permission_of_its_topic_only(client: Wire) -> None:
    batch = batch_of(b"value", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)

    def code(records: bytes) -> int:
        data = PartitionProduceData(index=0, records=records)
        topic = TopicProduceData(name="t", partition_data=[data])
        asked = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=5000, topic_data=[topic])
        return int(client.ask(asked, 12).responses[0].partition_responses[0].error_code)

    assert code(batch) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert code(batch[:-1]) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    older_format = batch[:MAGIC_POSITION] + b"\1" + batch[MAGIC_POSITION + 1 :]
    assert code(older_format) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_forbidden_topics_are_on_every_page(broker: Secured, client: Wire) -> None:
    broker.grant(Rule(TOPIC, "t", Operation.DESCRIBE))
    asked = [NamedTopic(name=name) for name in ("a", "t", "u")]
    answer = client.ask(DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=1))
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert {row.name: row.error_code for row in answer.topics} == {"a": denied, "t": 0, "u": denied}


def test_a_filter_with_a_value_of_a_later_kafka_selects_nothing_and_deletes_nothing(
    broker: Secured, client: Wire
) -> None:
    rule = Rule(TOPIC, "t", Operation.READ)
    broker.grant(rule)
    assert rows_of(broker.admin.ask(describe_request(kind=UNKNOWN_KIND))) == set()
    assert rows_of(broker.admin.ask(describe_request(operation=UNKNOWN_KIND))) == set()
    everything = DeleteAclsFilter(
        resource_type_filter=UNKNOWN_KIND,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    [deleted] = broker.admin.ask(DeleteAclsRequest(filters=[everything])).filter_results
    assert deleted.error_code == ErrorCode.INVALID_REQUEST
    assert broker.acls() == {rule.row}


def test_a_missing_scram_user_comes_before_faults_of_the_next_change(broker: Secured) -> None:
    asked = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="nobody", mechanism=2)],
        upsertions=[
            ScramCredentialUpsertion(
                name="nobody", mechanism=0, iterations=1, salt=b"salt", salted_password=b"password"
            )
        ],
    )
    [row] = broker.admin.ask(asked).results
    assert (row.user, row.error_code) == ("nobody", ErrorCode.RESOURCE_NOT_FOUND)


def test_a_handshake_after_the_login_is_not_told_the_mechanisms(broker: Secured) -> None:
    answer = broker.admin.ask(SaslHandshakeRequest(mechanism="x"))
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
