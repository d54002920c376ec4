"""From metadata records and found directories to what an import writes, and what it names as left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from felice.metadata import layout
from felice.metadata.client_entity import ClientEntity
from felice.metadata.layout import StateNode
from felice.migration.cluster_state import ClusterState, replay
from felice.migration.errors import MigrationError
from felice.migration.metadata_records import MetadataRecord
from felice.migration.plan import FoundPartition, Here, ImportPlan, plan_import
from felice.protocol.messages.cluster_metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EntityData,
    FeatureLevelRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from felice.security.acl import Acl, Operation, PatternType, Permission, ResourcePattern, ResourceType
from felice.security.sasl.scram import ScramCredential
from unit.migration.kafka_files import CLUSTER, DIRECTORY, HEAD, NODE, T, U, partition, topic

HERE = Here(NODE, CLUSTER, frozenset((DIRECTORY,)))


def state_of(*records: object) -> ClusterState:
    return replay(MetadataRecord(offset, record) for offset, record in enumerate(records))


def log_of(name: str, topic_id: UUID | None, epoch: int = 3, **others: bool) -> FoundPartition:
    stem, _, number = name.rpartition("-")
    return FoundPartition((stem, int(number)), Path("/data") / name, topic_id, epoch, **others)


def plan(
    records: Sequence[object], *found: FoundPartition, here: Here = HERE, set_aside: Sequence[Path] = ()
) -> ImportPlan:
    return plan_import(state_of(*HEAD, *records), found, set_aside, here)


def left(made: ImportPlan) -> dict[str, str]:
    return {f"{one.kind} {one.name}": one.reason for one in made.left}


def state_node(made: ImportPlan, name: str, number: int = 0) -> StateNode:
    return layout.decode_state(made.nodes[layout.state_path(name, number)])


def test_a_topic_comes_with_its_id_and_this_node_as_leader() -> None:
    made = plan(topic("t", T, 2), log_of("t-0", T), log_of("t-1", T))
    assert [log.name for log in made.partitions] == ["t-0", "t-1"]
    node = layout.decode_topic(made.nodes["/brokers/topics/t"])
    assert (node.topic_id, node.partitions) == (T, {0: (NODE,), 1: (NODE,)})
    assert layout.topic_id_path("t", T) in made.nodes
    assert state_node(made, "t", 1) == StateNode(NODE, 5, 0, (NODE,))
    assert left(made) == {}


@pytest.mark.parametrize(
    ("changes", "of_log", "epoch"),
    [
        ([], 3, 5),
        ([], 9, 10),
        ([PartitionChangeRecord(partition_id=0, topic_id=T, leader=-1, isr=[])], 3, 6),
        ([PartitionChangeRecord(partition_id=0, topic_id=T, isr=[NODE])], 3, 5),
        ([PartitionChangeRecord(partition_id=0, topic_id=T, leader=NODE)] * 3, 3, 8),
    ],
    ids=["of metadata", "of the log", "no leader", "unchanged leader", "several"],
)
def test_the_leader_epoch_is_above_all_that_were(changes: list[object], of_log: int, epoch: int) -> None:
    made = plan([*topic("t", T), *changes], log_of("t-0", T, of_log))
    assert state_node(made, "t").leader_epoch == epoch


def test_a_clean_stop_of_the_only_node_is_no_loss() -> None:
    """Its last record takes leader and ISR away, and names the node as eligible."""
    stop = PartitionChangeRecord(
        partition_id=0, topic_id=T, leader=-1, isr=[], eligible_leader_replicas=[NODE]
    )
    assert left(plan([*topic("t", T), stop], log_of("t-0", T))) == {}
    cut_off = PartitionChangeRecord(partition_id=0, topic_id=T, leader=2, isr=[2])
    assert left(plan([*topic("t", T), cut_off], log_of("t-0", T))) == {
        "partition t-0": "node 1 was not in sync; the last records may be missing"
    }


def test_a_deleted_topic_and_its_namesake_are_told_apart() -> None:
    records = [*topic("t", T), RemoveTopicRecord(topic_id=T), *topic("t", U)]
    made = plan(records, log_of("t-0", T), replace(log_of("t-0", U), path=Path("/two/t-0")))
    assert [log.path for log in made.partitions] == [Path("/two/t-0")]
    assert left(made) == {"directory /data/t-0": "it belongs to an older topic of this name"}
    assert layout.decode_topic(made.nodes["/brokers/topics/t"]).topic_id == U


def test_directories_without_a_place_are_named() -> None:
    aside = Path(f"/data/t-9.{'0' * 32}-stray")
    made = plan(topic("t", T), log_of("t-0", T), log_of("gone-0", U), set_aside=[aside])
    assert left(made) == {
        "directory /data/gone-0": "no topic of the metadata has this name and id",
        f"directory {aside}": "Kafka had set it aside",
    }


def test_replicas_of_other_nodes_stay_offline_and_topics_of_others_do_not_come() -> None:
    records = [
        TopicRecord(name="t", topic_id=T),
        partition(T, 0, replicas=[1, 2], isr=[1, 2], directories=[DIRECTORY, UUID(int=77)]),
        partition(T, 1, replicas=[3, 2], isr=[2], leader=2, directories=[UUID(int=77)] * 2),
        TopicRecord(name="u", topic_id=U),
        partition(U, 0, replicas=[2], isr=[2], leader=2, directories=[UUID(int=77)]),
    ]
    made = plan(records, log_of("t-0", T))
    assert layout.decode_topic(made.nodes["/brokers/topics/t"]).partitions == {0: (1,), 1: (3, 2)}
    assert state_node(made, "t", 1) == StateNode(-1, 4, 0, (2,))
    assert left(made) == {
        "partition t-1": "its replicas are on other nodes (3, 2); it is offline",
        "topic u": "all its replicas are on other nodes: 2",
    }
    assert not any(path.startswith("/brokers/topics/u") for path in made.nodes)


def test_a_replica_that_moved_away_does_not_come() -> None:
    moved = PartitionChangeRecord(partition_id=0, topic_id=T, replicas=[2], isr=[2], leader=2)
    made = plan([*topic("t", T), moved, *topic("u", U)], log_of("t-0", T), log_of("u-0", U))
    assert left(made)["topic t"] == "all its replicas are on other nodes: 2"
    assert [log.name for log in made.partitions] == ["u-0"]


def test_the_log_of_a_replica_that_moved_away_is_named() -> None:
    moved = PartitionChangeRecord(partition_id=0, topic_id=T, replicas=[2], isr=[2], leader=2)
    made = plan([*topic("t", T, 2), moved], log_of("t-0", T), log_of("t-1", T))
    assert left(made) == {
        "partition t-0": "its replicas are on other nodes (2); it is offline",
        "directory /data/t-0": "node 1 is no replica of it any more",
    }


@pytest.mark.parametrize(("count", "ending"), [(10, "t-9. Name"), (12, "t-9 and 2 more. Name")])
def test_at_most_ten_names_are_listed(count: int, ending: str) -> None:
    with pytest.raises(MigrationError) as caught:
        plan(topic("t", T, count))
    assert ending in str(caught.value)


def test_a_forgotten_directory_is_noticed() -> None:
    other = UUID(int=2000)
    register = replace(HERE, directory_ids=frozenset((other,)))
    with pytest.raises(MigrationError, match="node 1 has 1 more log directories than were given"):
        plan(topic("t", T), log_of("t-0", T), here=register)
    with pytest.raises(MigrationError, match=r"1 partitions of node 1 have no log .*: t-1\. Name all"):
        plan(topic("t", T, 2), log_of("t-0", T))
    made = plan(topic("t", T, 2), log_of("t-0", T), here=replace(HERE, may_miss_logs=True))
    assert left(made) == {"partition t-1": "it has no log, and begins empty at offset 0"}
    assert made.empty == [("t", 1)]


def test_a_partition_that_has_no_directory_yet_begins_empty() -> None:
    new = partition(T, 1, directories=[UUID(int=1)])
    assert plan([*topic("t", T), new], log_of("t-0", T)).empty == [("t", 1)]


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(MigrationError, match="a topic whose name is not valid"):
        plan(topic("../t", T))


def test_partitions_that_are_not_counted_from_0_are_refused() -> None:
    with pytest.raises(MigrationError, match=r"topic t with partitions \[1\]"):
        plan([TopicRecord(name="t", topic_id=T), partition(T, 1)])


def test_two_logs_of_one_partition_are_refused() -> None:
    twice = replace(log_of("t-0", T), path=Path("/two/t-0"))
    with pytest.raises(MigrationError, match="/data/t-0 and /two/t-0 are both partition 0 of topic t"):
        plan(topic("t", T), log_of("t-0", T), twice)


def test_what_cannot_be_served_rightly_does_not_come() -> None:
    tiered = ConfigRecord(resource_type=2, resource_name="t", name="remote.storage.enable", value="true")
    made = plan([*topic("t", T), tiered, *topic("u", U)], log_of("t-0", T), log_of("u-0", U, is_legacy=True))
    assert left(made) == {
        "topic t": "its older records are in tiered storage, which Felice does not read",
        "topic u": "u-0 has records in message format 0 or 1; only format 2 is read",
    }
    assert list(made.partitions) == []


def config(kind: int, resource: str, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


def test_configurations_come_if_they_are_known() -> None:
    made = plan(
        [
            *topic("t", T),
            config(2, "t", "retention.ms", "-1"),
            config(2, "t", "segment.bytes", "1048576"),
            config(2, "t", "retention.ms", None),
            config(2, "t", "flush.ms", "soon"),
            config(4, "", "message.max.bytes", "2000000"),
            config(4, "1", "log.cleaner.threads", "2"),
            config(4, "2", "log.cleaner.threads", "3"),
            config(4, "1", "listeners", "PLAINTEXT://:9999"),
            config(4, "1", "confluent.metrics", "x"),
            config(16, "everyone", "interval.ms", "30000"),
            config(32, "queue", "share.auto.offset.reset", "earliest"),
            config(64, "new", "a", "b"),
        ],
        log_of("t-0", T),
    )
    configs = {
        path: layout.decode_config(data) for path, data in made.nodes.items() if path.startswith("/config")
    }
    assert configs == {
        "/config/topics/t": {"segment.bytes": "1048576"},
        "/config/brokers/<default>": {"message.max.bytes": "2000000"},
        "/config/brokers/1": {"log.cleaner.threads": "2"},
        "/config/client-metrics/everyone": {"interval.ms": "30000"},
    }
    assert left(made).keys() == {
        "configuration topic t: flush.ms",
        "configuration broker 2",
        "configuration broker 1: listeners",
        "configuration broker 1: confluent.metrics",
        "configuration group queue",
        "configuration new",
    }


def test_passwords_of_zookeeper_are_encrypted() -> None:
    name = "listener.name.external.ssl.keystore.password"
    records = [config(4, "1", name, "keyLength:128,cipherAlgorithm:AES")]
    assert left(plan(records)) == {}
    made = plan(records, here=replace(HERE, has_encrypted_passwords=True))
    assert list(left(made)) == [f"configuration broker 1: {name}"]


def quota(key: str, value: float, *, remove: bool = False, **entity: str | None) -> ClientQuotaRecord:
    parts = [
        EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()
    ]
    return ClientQuotaRecord(entity=parts, key=key, value=value, remove=remove)


def test_quotas_and_scram_users_come() -> None:
    credential = ScramCredential.of_password("SCRAM-SHA-256", "secret", b"salt", 4096)
    keys = {"salt": b"salt", "stored_key": credential.stored_key, "server_key": credential.server_key}
    made = plan(
        [
            quota("producer_byte_rate", 1e6, user="bob"),
            quota("consumer_byte_rate", 2e6, client_id=None),
            quota("consumer_byte_rate", 2e6, user="bob", client_id="c"),
            quota("request_percentage", 50, ip="10.0.0.1"),
            quota("request_percentage", 0, ip="10.0.0.1", remove=True),
            UserScramCredentialRecord(name="bob", mechanism=1, iterations=4096, **keys),
            UserScramCredentialRecord(name="eve", mechanism=2, iterations=4096, **keys),
            RemoveUserScramCredentialRecord(name="eve", mechanism=2),
        ]
    )
    configs = {
        path: layout.decode_config(made.nodes[path]) for path in made.nodes if path.startswith("/config")
    }
    assert configs == {
        "/config/users/bob": {"producer_byte_rate": "1000000.0", "SCRAM-SHA-256": credential.format()},
        "/config/clients/<default>": {"consumer_byte_rate": "2000000.0"},
        f"/config/{ClientEntity('bob', 'c').path}": {"consumer_byte_rate": "2000000.0"},
    }
    assert made.counts["quotas"] == 3
    assert made.counts["SCRAM credentials"] == 1


def rule(number: int, name: str, principal: str = "User:alice") -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=UUID(int=number),
        resource_type=ResourceType.TOPIC,
        resource_name=name,
        pattern_type=PatternType.PREFIXED,
        principal=principal,
        host="*",
        operation=Operation.READ,
        permission_type=Permission.ALLOW,
    )


def test_access_rules_come_by_resource() -> None:
    removed = RemoveAccessControlEntryRecord(id=UUID(int=3))
    made = plan([rule(1, "t"), rule(2, "t", "User:bob"), rule(3, "u"), removed, rule(4, "a/b")])
    resource = ResourcePattern(ResourceType.TOPIC, "t", PatternType.PREFIXED)
    assert layout.decode_acls(made.nodes[layout.acls_path(resource)]) == (
        Acl("User:alice", "*", Operation.READ, Permission.ALLOW),
        Acl("User:bob", "*", Operation.READ, Permission.ALLOW),
    )
    assert made.counts["access rules"] == 2
    assert list(left(made)) == ["access rules Topic a/b"]


def test_producer_ids_are_not_given_out_again() -> None:
    made = plan([ProducerIdsRecord(broker_id=1, next_producer_id=1000)])
    block = layout.decode_producer_id_block(made.nodes[layout.PRODUCER_ID_BLOCK])
    assert (block.start, block.end) == (0, 999)
    assert layout.PRODUCER_ID_BLOCK not in plan([]).nodes


def test_features_come_as_far_as_they_are_supported() -> None:
    assert layout.decode_features(plan([]).nodes[layout.FEATURES]) == {"transaction.version": 2}
    off = FeatureLevelRecord(name="transaction.version", feature_level=0)
    assert layout.decode_features(plan([off]).nodes[layout.FEATURES]) == {}


def test_delegation_tokens_are_named() -> None:
    made = plan([DelegationTokenRecord(owner="User:a", token_id="x")])
    assert list(left(made)) == ["delegation token x"]


@pytest.mark.parametrize(
    "record",
    [
        partition(U),
        PartitionChangeRecord(partition_id=3, topic_id=T, leader=2),
        RemoveTopicRecord(topic_id=U),
        RemoveAccessControlEntryRecord(id=U),
        UserScramCredentialRecord(name="a", mechanism=9),
        quota("a", 1, nobody="x"),
    ],
    ids=lambda record: type(record).__name__,
)
def test_records_that_contradict_each_other_are_refused(record: object) -> None:
    name = type(record).__name__
    with pytest.raises(MigrationError, match=f"offset 2, {name}, contradicts the records before it"):
        state_of(*topic("t", T), record)
