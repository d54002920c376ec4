"""Authorisation, rule by rule. The precedence of ACLs by themselves is in tests/unit/security/test_acl_rules.py.

Apart from the tests marked `felice_only`, Apache Kafka passes this module too (FELICE_CONFORMANCE_TARGET=apache).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.batches import fetch_request
from conformance.group_calls import commit
from conformance.secured import (
    ANONYMOUS,
    Rule,
    Secured,
    describe_request,
    prepared,
    rows_of,
    secured,
)
from conformance.targets import Target
from conformance.topics import (
    REQUEST_TIMEOUT_MS,
    batch_of,
    create_topic_over,
    list_offset,
    metadata_of,
    produce,
    produce_values,
    wait_until,
)
from conformance.transaction_calls import WireProducer
from conformance.wire import ConnectionClosed, Wire, unique_name
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.create_acls import CreateAclsRequest
from felice.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from felice.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from felice.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from felice.protocol.messages.describe_cluster import DescribeClusterRequest
from felice.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from felice.protocol.messages.describe_groups import DescribeGroupsRequest
from felice.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from felice.protocol.messages.describe_transactions import DescribeTransactionsRequest
from felice.protocol.messages.fetch import FetchRequest, FetchTopic, ForgottenTopic
from felice.protocol.messages.find_coordinator import FindCoordinatorRequest
from felice.protocol.messages.init_producer_id import InitProducerIdRequest
from felice.protocol.messages.list_groups import ListGroupsRequest
from felice.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.security.acl import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
READ, WRITE, CREATE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE
OF_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NOT_REQUESTED = -(2**31)


def bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("authorisation") / "data") as found:
        prepared(found)
        yield found


@pytest.fixture(autouse=True)
def without_rules(broker: Secured) -> None:
    broker.clear()


@pytest.fixture
def client(broker: Secured) -> Wire:
    return broker.client


def fetched(wire: Wire, topic: str) -> int:
    row = wire.ask(fetch_request(topic, max_wait_ms=0), 12).responses[0].partitions[0]
    return int(row.error_code)


def names_of(answer: Any) -> set[str]:
    return {topic.name for topic in answer.topics}


def test_without_an_authorizer_everything_is_allowed_and_acls_are_disabled(tmp_path_factory: Any) -> None:
    with Target() as target, target.wire() as wire:
        create_topic_over(wire, "free")
        produce_values(wire, "free", [b"value"])
        answer = wire.ask(describe_request())
        assert answer.error_code == ErrorCode.SECURITY_DISABLED
        rule = Rule(TOPIC, "free", READ)
        created = wire.ask(CreateAclsRequest(creations=[rule.creation()]))
        assert [row.error_code for row in created.results] == [ErrorCode.SECURITY_DISABLED]


def test_permission_to_read_is_enough_to_find_the_topic(broker: Secured, client: Wire) -> None:
    broker.grant(Rule(TOPIC, "t", READ))
    assert fetched(client, "t") == 0
    assert list_offset(client, "t", -1).error_code == 0
    assert metadata_of(client, "t").error_code == 0
    assert produce(client, "t", batch_of(b"value")).error_code == OF_TOPIC


def test_a_denial_to_read_leaves_the_topic_visible(broker: Secured, client: Wire) -> None:
    broker.grant(Rule(TOPIC, "t", READ, Permission.DENY), Rule(TOPIC, "t", Operation.ALL))
    assert fetched(client, "t") == OF_TOPIC
    assert metadata_of(client, "t").error_code == 0


def test_users_have_rules_of_their_own(broker: Secured) -> None:
    broker.grant(
        Rule(TOPIC, "t", READ, principal="User:alice"),
        Rule(TOPIC, "u", READ, principal="User:*"),
        Rule(TOPIC, "u", READ, Permission.DENY, principal="User:bob"),
    )
    with broker.user("alice") as alice, broker.user("bob") as bob:
        assert [fetched(alice, topic) for topic in "tu"] == [0, 0]
        assert [fetched(bob, topic) for topic in "tu"] == [OF_TOPIC, OF_TOPIC]
    assert [fetched(broker.client, topic) for topic in "tu"] == [OF_TOPIC, 0]


def test_a_host_is_compared_with_the_address_of_the_client(broker: Secured, client: Wire) -> None:
    broker.grant(Rule(TOPIC, "t", READ, host="127.0.0.1"), Rule(TOPIC, "u", READ, host="127.0.0.2"))
    assert [fetched(client, topic) for topic in "tu"] == [0, OF_TOPIC]


@pytest.mark.felice_only
def test_a_host_with_a_slash_is_a_network(broker: Secured, client: Wire) -> None:
    broker.grant(Rule(TOPIC, "t", READ, host="127.0.0.0/8"), Rule(TOPIC, "u", READ, host="10.0.0.0/8"))
    assert [fetched(client, topic) for topic in "tu"] == [0, OF_TOPIC]


def test_an_unknown_topic_is_not_told_from_a_forbidden_one(broker: Secured, client: Wire) -> None:
    """29: a request that names a topic gets an error."""
    assert fetched(client, "missing") == OF_TOPIC
    assert list_offset(client, "missing", -1).error_code == OF_TOPIC
    assert metadata_of(client, "missing").error_code == OF_TOPIC
    assert produce(client, "missing", batch_of(b"value")).error_code == OF_TOPIC
    assert not metadata_of(client, "missing").is_internal
    assert metadata_of(client, "__consumer_offsets").is_internal
    broker.grant(Rule(TOPIC, "missing", Operation.ALL))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetched(client, "missing") == unknown
    assert list_offset(client, "missing", -1).error_code == unknown
    assert metadata_of(client, "missing").error_code == unknown


def test_lists_leave_out_what_is_forbidden(broker: Secured, client: Wire) -> None:
    """29: a request for all topics gets those that the client may see, and no error."""
    assert names_of(client.ask(MetadataRequest(topics=None), 12)) == set()
    assert names_of(client.ask(DescribeTopicPartitionsRequest(topics=[]))) == set()
    assert client.ask(ListGroupsRequest(), 4).groups == []
    broker.grant(Rule(TOPIC, "t", DESCRIBE), Rule(GROUP, "g", DESCRIBE))
    assert names_of(client.ask(MetadataRequest(topics=None), 12)) == {"t"}
    assert names_of(client.ask(DescribeTopicPartitionsRequest(topics=[]))) == {"t"}
    assert [group.group_id for group in client.ask(ListGroupsRequest(), 4).groups] == ["g"]


def test_all_offsets_of_a_group_are_those_of_visible_topics(broker: Secured, client: Wire) -> None:
    assert commit(broker.admin, "u", 5, version=8, group_id="g") == 0
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    named = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id="g",
                topics=[OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in "tu"],
            )
        ]
    )
    broker.grant(Rule(GROUP, "g", DESCRIBE), Rule(TOPIC, "u", DESCRIBE))
    (group,) = client.ask(request, 8).groups
    assert [topic.name for topic in group.topics] == ["u"]
    (group,) = client.ask(named, 8).groups
    rows = {topic.name: topic.partitions[0] for topic in group.topics}
    assert (rows["u"].error_code, rows["u"].committed_offset) == (0, 5)
    assert (rows["t"].error_code, rows["t"].committed_offset) == (OF_TOPIC, -1)


def test_permission_to_write_some_topic_is_enough_for_an_idempotent_producer(
    broker: Secured, client: Wire
) -> None:
    request = InitProducerIdRequest(transactional_id=None)
    assert client.ask(request, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    broker.grant(Rule(TOPIC, "t", WRITE))
    assert client.ask(request, 4).error_code == 0
    broker.only(Rule(TOPIC, "t", WRITE), Rule(TOPIC, "t", WRITE, Permission.DENY))
    assert client.ask(request, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_topic_is_not_created_by_a_client_that_may_only_write_it(broker: Secured, client: Wire) -> None:
    name = unique_name("automatic")
    broker.grant(Rule(TOPIC, name, DESCRIBE), Rule(TOPIC, name, WRITE))
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    assert client.ask(request, 12).topics[0].error_code == OF_TOPIC
    assert metadata_of(broker.admin, name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.grant(Rule(TOPIC, name, CREATE))
    wait_until(lambda: client.ask(request, 12).topics[0].error_code == 0)


def test_a_consumer_without_a_group_needs_no_group(broker: Secured, client: Wire) -> None:
    broker.grant(Rule(TOPIC, "t", READ))
    found = client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0]
    assert (found.error_code, found.node_id) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, -1)
    assert fetched(client, "t") == 0


def test_one_forbidden_topic_leaves_the_transaction_untouched(broker: Secured, client: Wire) -> None:
    broker.grant(
        Rule(TRANSACTIONAL_ID, "x", WRITE), Rule(TRANSACTIONAL_ID, "x", DESCRIBE), Rule(TOPIC, "t", WRITE)
    )
    producer = WireProducer(client, "x").begin_life()
    assert producer.add(("t", 0), ("u", 0)) == {
        ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("u", 0): OF_TOPIC,
    }
    request = DescribeTransactionsRequest(transactional_ids=["x"])
    (state,) = broker.admin.ask(request).transaction_states
    assert (state.transaction_state, state.topics) == ("Empty", [])
    assert producer.add_one("t") == 0
    assert producer.send("t", b"value").error_code == 0
    # Of the topics of a transaction, a client sees those that it may describe.
    broker.only(Rule(TRANSACTIONAL_ID, "x", DESCRIBE))
    assert client.ask(request).transaction_states[0].topics == []
    broker.grant(Rule(TOPIC, "t", DESCRIBE))
    assert [topic.topic for topic in client.ask(request).transaction_states[0].topics] == ["t"]


def test_a_transactional_batch_needs_its_transactional_id(broker: Secured, client: Wire) -> None:
    broker.grant(Rule(TOPIC, "t", WRITE), Rule(TOPIC, "u", WRITE))
    batch = batch_of(b"value", transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    rows = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch)])
        for name in "tu"
    ]
    request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=REQUEST_TIMEOUT_MS, topic_data=rows)
    codes = [
        row.error_code for topic in client.ask(request, 9).responses for row in topic.partition_responses
    ]
    assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2


def test_permitted_partitions_are_written_beside_forbidden_ones(broker: Secured, client: Wire) -> None:
    broker.grant(Rule(TOPIC, "t", WRITE))
    end = list_offset(broker.admin, "t", -1).offset

    def request(acks: int) -> ProduceRequest:
        rows = [
            TopicProduceData(
                name=name, partition_data=[PartitionProduceData(index=0, records=batch_of(b"v"))]
            )
            for name in ("u", "t")
        ]
        return ProduceRequest(acks=acks, timeout_ms=REQUEST_TIMEOUT_MS, topic_data=rows)

    answer = client.ask(request(-1), 9)
    assert {topic.name: topic.partition_responses[0].error_code for topic in answer.responses} == {
        "t": 0,
        "u": OF_TOPIC,
    }
    assert list_offset(broker.admin, "t", -1).offset == end + 1
    with Wire(broker.bootstrap) as silent:
        silent.send(request(0), 9)
        with pytest.raises(ConnectionClosed):
            silent.ask(DescribeClusterRequest())
    wait_until(lambda: list_offset(broker.admin, "t", -1).offset == end + 2)


def test_a_creator_without_describe_configs_learns_nothing_of_the_configs(
    broker: Secured, client: Wire
) -> None:
    name = unique_name("created")
    broker.grant(Rule(TOPIC, name, CREATE))
    wanted = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    (row,) = client.ask(CreateTopicsRequest(topics=[wanted]), 6).topics
    assert (row.error_code, row.topic_config_error_code) == (0, OF_TOPIC)
    assert (row.num_partitions, row.replication_factor, row.configs or []) == (-1, -1, [])
    wait_until(lambda: len(metadata_of(broker.admin, name).partitions) == 2)


def test_a_topic_to_delete_by_id_is_named_only_to_clients_that_may_describe_it(
    broker: Secured, client: Wire
) -> None:
    topic_id = metadata_of(broker.admin, "t").topic_id
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)], timeout_ms=REQUEST_TIMEOUT_MS)
    (row,) = client.ask(request, 6).responses
    assert (row.error_code, row.name, row.topic_id) == (OF_TOPIC, None, topic_id)
    broker.grant(Rule(TOPIC, "t", DESCRIBE))
    (row,) = client.ask(request, 6).responses
    assert (row.error_code, row.name, row.topic_id) == (OF_TOPIC, "t", topic_id)
    assert metadata_of(broker.admin, "t").error_code == 0


def test_a_topic_is_deleted_by_a_client_that_may(broker: Secured, client: Wire) -> None:
    name = create_topic_over(broker.admin, unique_name("deleted"))
    broker.grant(Rule(TOPIC, name, Operation.DELETE))
    request = DeleteTopicsRequest(topic_names=[name, "t"], timeout_ms=REQUEST_TIMEOUT_MS)
    codes = {row.name: row.error_code for row in client.ask(request, 5).responses}
    assert codes == {name: 0, "t": OF_TOPIC}


def test_acls_are_found_by_the_names_to_which_they_apply(broker: Secured) -> None:
    prefixed = [Rule(TOPIC, name, READ, pattern=PatternType.PREFIXED) for name in ("f", "fo", "foo", "food")]
    literal = [Rule(TOPIC, name, READ) for name in ("foo", "*", "f", "other")]
    broker.grant(*prefixed, *literal)
    found = rows_of(broker.admin.ask(describe_request(TOPIC, "foo", PatternType.MATCH)))
    assert found == {rule.row for rule in (*prefixed[:3], *literal[:2])}
    found = rows_of(broker.admin.ask(describe_request(TOPIC, "foo")))
    assert found == {prefixed[2].row, literal[0].row}
    found = rows_of(broker.admin.ask(describe_request(TOPIC, None, PatternType.PREFIXED)))
    assert found == {rule.row for rule in prefixed}
    found = rows_of(broker.admin.ask(describe_request(principal_filter="User:*")))
    assert found == set()


def test_an_acl_exists_once_and_is_deleted_once(broker: Secured) -> None:
    rule = Rule(TOPIC, "foo", READ)
    broker.grant(rule, rule)
    broker.grant(rule)
    answer = broker.admin.ask(describe_request(TOPIC, "foo"))
    assert [len(resource.acls) for resource in answer.resources] == [1]
    wanted = DeleteAclsFilter(
        resource_type_filter=TOPIC,
        resource_name_filter="foo",
        principal_filter=ANONYMOUS,
        host_filter=None,
        operation=READ,
        permission_type=Permission.ALLOW,
    )
    request = DeleteAclsRequest(filters=[wanted])
    (first,) = broker.admin.ask(request).filter_results
    assert [(acl.resource_name, acl.principal) for acl in first.matching_acls] == [("foo", ANONYMOUS)]
    wait_until(lambda: not broker.acls())
    (second,) = broker.admin.ask(request).filter_results
    assert (second.error_code, second.matching_acls) == (0, [])


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (Rule(CLUSTER, "other", Operation.ALTER), ErrorCode.INVALID_REQUEST),
        (Rule(TOPIC, "", READ), ErrorCode.INVALID_REQUEST),
        (Rule(TOPIC, "foo", READ, principal="nobody"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_invalid_acl_is_refused_beside_valid_ones(rule: Rule, code: ErrorCode, broker: Secured) -> None:
    good = Rule(TOPIC, "good", READ)
    answer = broker.admin.ask(CreateAclsRequest(creations=[good.creation(), rule.creation()]))
    assert [row.error_code for row in answer.results] == [0, code]
    wait_until(lambda: broker.acls() == {good.row})


@pytest.mark.felice_only
@pytest.mark.parametrize(
    "rule",
    [
        Rule(TOPIC, "a/b", READ),
        Rule(GROUP, "..", READ),
        Rule(TOPIC, "foo", READ, host="10.0.0.0/99"),
        Rule(TOPIC, "foo", READ, pattern=PatternType.MATCH),
        Rule(ResourceType.ANY, "foo", READ),
        Rule(TOPIC, "foo", Operation.ANY),
        Rule(TOPIC, "foo", READ, Permission.ANY),
    ],
)
def test_an_acl_that_the_metadata_store_cannot_hold_is_refused(rule: Rule, broker: Secured) -> None:
    answer = broker.admin.ask(CreateAclsRequest(creations=[rule.creation()]))
    assert [row.error_code for row in answer.results] == [ErrorCode.INVALID_REQUEST]
    assert not broker.acls()


def session_request(session: Any, epoch: int, *topics: str, forgets: str | None = None) -> FetchRequest:
    rows = [FetchTopic(topic=name, partitions=fetch_request(name).topics[0].partitions) for name in topics]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session, session_epoch=epoch, topics=rows)
    if forgets is not None:
        request.forgotten_topics_data = [ForgottenTopic(topic=forgets, partitions=[0])]
    return request


def test_a_fetch_session_ends_with_the_permission(broker: Secured, client: Wire) -> None:
    broker.grant(Rule(TOPIC, "t", READ), Rule(TOPIC, "u", READ))
    first = client.ask(session_request(0, 0, "t", "u"), 12)
    assert {topic.topic: topic.partitions[0].error_code for topic in first.responses} == {"t": 0, "u": 0}
    broker.only(Rule(TOPIC, "u", READ))
    second = client.ask(session_request(first.session_id, 1), 12)
    codes = {topic.topic: topic.partitions[0].error_code for topic in second.responses}
    assert codes["t"] == OF_TOPIC
    assert not codes.get("u")
    broker.grant(Rule(TOPIC, "t", READ))
    third = client.ask(session_request(first.session_id, 2), 12)
    assert {topic.topic: topic.partitions[0].error_code for topic in third.responses}["t"] == 0


def test_authorised_operations_are_those_of_the_client(broker: Secured, client: Wire) -> None:
    broker.grant(
        Rule(TOPIC, "t", READ),
        Rule(TOPIC, "t", Operation.ALTER_CONFIGS),
        Rule(GROUP, "g", Operation.DELETE),
        Rule(CLUSTER, CLUSTER_NAME, Operation.IDEMPOTENT_WRITE),
    )
    of_topic = bits(READ, DESCRIBE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS)
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="t"), MetadataRequestTopic(name="u")],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    answer = client.ask(request, 9)
    assert {topic.name: topic.topic_authorized_operations for topic in answer.topics} == {
        "t": of_topic,
        "u": NOT_REQUESTED,
    }
    assert answer.cluster_authorized_operations == 0
    (topic,) = client.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])).topics
    assert topic.topic_authorized_operations == of_topic
    (group,) = client.ask(DescribeGroupsRequest(groups=["g"], include_authorized_operations=True), 5).groups
    assert group.authorized_operations == bits(Operation.DELETE, DESCRIBE)
    cluster_request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert client.ask(cluster_request).cluster_authorized_operations == 0
    broker.grant(Rule(CLUSTER, CLUSTER_NAME, DESCRIBE))
    expected = bits(DESCRIBE, Operation.IDEMPOTENT_WRITE)
    assert client.ask(cluster_request).cluster_authorized_operations == expected
    assert client.ask(request, 9).cluster_authorized_operations == expected


def test_rows_of_one_topic_differ_between_clients(broker: Secured, client: Wire) -> None:
    """Encoded rows are cached, but a client must not see the permitted operations of another client."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="t")], include_topic_authorized_operations=True
    )
    broker.grant(Rule(TOPIC, "t", DESCRIBE))
    everything = broker.admin.ask(request, 12).topics[0].topic_authorized_operations
    own = client.ask(request, 12).topics[0].topic_authorized_operations
    assert (everything, own) == (3576, bits(DESCRIBE))
    assert broker.admin.ask(request, 12).topics[0].topic_authorized_operations == everything


def test_configs_of_each_resource_need_a_permission_of_their_own(broker: Secured, client: Wire) -> None:
    broker.grant(Rule(TOPIC, "t", Operation.DESCRIBE_CONFIGS))
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=["retention.ms"])
        for kind, name in ((2, "t"), (2, "u"), (4, "1"))
    ]
    answer = client.ask(DescribeConfigsRequest(resources=resources))
    found = {(row.resource_type, row.resource_name): row for row in answer.results}
    assert {key: row.error_code for key, row in found.items()} == {
        (2, "t"): 0,
        (2, "u"): OF_TOPIC,
        (4, "1"): ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
    assert [entry.name for entry in found[2, "t"].configs] == ["retention.ms"]
    assert not found[2, "u"].configs
