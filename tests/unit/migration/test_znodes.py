"""Clusters of ZooKeeper mode: from their nodes, or from their directories alone."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from felice.env import SystemDisk
from felice.metadata import layout
from felice.metadata.client_entity import ClientEntity
from felice.migration import importing
from felice.migration.cluster_state import BROKER, TOPIC
from felice.migration.errors import MigrationError
from felice.migration.znodes import read_nodes, state_of
from felice.protocol.uuids import format_uuid
from felice.security.sasl.scram import ScramCredential
from unit.migration.kafka_files import CLUSTER, NODE, T, U, batch, log_directory

DISK = SystemDisk()
CREDENTIAL = ScramCredential.of_password("SCRAM-SHA-512", "secret", b"salt", 4096)

# As Kafka 3.9 writes them.
NODES = {
    "/cluster/id": f'{{"version":"1","id":"{CLUSTER}"}}',
    "/brokers/ids/1": '{"version":5,"endpoints":["PLAINTEXT://h:9092"],"timestamp":"1"}',
    "/brokers/topics/t": json.dumps(
        {
            "removing_replicas": {},
            "partitions": {"0": [1], "1": [2, 1]},
            "topic_id": format_uuid(T),
            "adding_replicas": {},
            "version": 3,
        }
    ),
    "/brokers/topics/t/partitions/0/state": '{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":4,"isr":[1]}',
    "/brokers/topics/t/partitions/1/state": '{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":8,"isr":[2]}',
    "/brokers/topics/u": json.dumps({"version": 3, "topic_id": format_uuid(U), "partitions": {"0": [1]}}),
    "/admin/delete_topics/u": "",
    "/config/topics/t": '{"version":1,"config":{"segment.bytes":"1048576"}}',
    "/config/topics/u": '{"version":1,"config":{}}',
    "/config/brokers/<default>": '{"version":1,"config":{"message.max.bytes":"2000000"}}',
    "/config/brokers/1": json.dumps(
        {"version": 1, "config": {"listener.name.external.ssl.keystore.password": "keyLength:128"}}
    ),
    "/config/users/bob": json.dumps(
        {"version": 1, "config": {"producer_byte_rate": "1000", "SCRAM-SHA-512": CREDENTIAL.format()}}
    ),
    "/config/users/bob/clients": "",
    "/config/changes": "",
    "/kafka-acl/Topic/t": json.dumps(
        {
            "version": 1,
            "acls": [{"principal": "User:a", "permissionType": "Allow", "operation": "Read", "host": "*"}],
        }
    ),
    "/latest_producer_id_block": '{"version":1,"broker":1,"block_start":"2000","block_end":"2999"}',
    "/feature": '{"features":{},"version":2,"status":1}',
}


@pytest.fixture
def kafka(tmp_path: Path) -> Path:
    logs = {("t", 0): (T, {0: batch([b"a"], 0)}), ("t", 1): (T, {0: b""}), ("u", 0): (U, {0: b""})}
    return log_directory(tmp_path / "kafka", logs, version=0)


def dumped(nodes: dict[str, str]) -> str:
    return json.dumps({"nodes": [{"path": path, "data": data, "version": 0} for path, data in nodes.items()]})


def test_nodes_are_read_as_kafka_wrote_them() -> None:
    state = state_of(read_nodes(dumped(NODES)))
    [topic] = state.topics.values()
    assert (topic.name, topic.topic_id, sorted(topic.partitions)) == ("t", T, [0, 1])
    assert topic.partitions[1].leader_epoch == 8
    assert state.configs[TOPIC, "t"] == {"segment.bytes": "1048576"}
    assert state.configs[BROKER, ""] == {"message.max.bytes": "2000000"}
    assert state.quotas == {ClientEntity("bob"): {"producer_byte_rate": 1000.0}}
    assert state.scram == {"bob": {"SCRAM-SHA-512": CREDENTIAL}}
    assert [rule.acl.principal for rule in state.acls.values()] == ["User:a"]
    assert state.next_producer_id == 3000


def test_a_cluster_of_zookeeper_comes_with_its_nodes(kafka: Path) -> None:
    found = importing.survey(DISK, [kafka], nodes=read_nodes(dumped(NODES)))
    assert found.plan.counts["topics"] == 1
    assert [log.name for log in found.plan.partitions] == ["t-0", "t-1"]
    state = layout.decode_state(found.plan.nodes[layout.state_path("t", 1)])
    assert (state.leader, state.leader_epoch, state.isr) == (NODE, 9, (NODE,))
    left = {one.name: one.reason for one in found.plan.left}
    name = "listener.name.external.ssl.keystore.password"
    assert left[f"broker 1: {name}"].startswith("it is encrypted with Kafka's password.encoder.secret")
    assert left["t-1"] == "node 1 was not in sync; the last records may be missing"
    assert left[str(kafka / "u-0")] == "no topic of the metadata has this name and id"


def test_without_nodes_topics_and_records_alone_come(kafka: Path) -> None:
    with pytest.raises(
        MigrationError, match="give its nodes with --znodes, or take topics and records alone"
    ):
        importing.survey(DISK, [kafka])
    found = importing.survey(DISK, [kafka], without_metadata=True)
    assert found.plan.counts["topics"] == 2
    block = layout.decode_producer_id_block(found.plan.nodes[layout.PRODUCER_ID_BLOCK])
    assert block.end > 10**11, "nothing says which producer ids are in use"
    assert any("configurations, access rules" in note for note in found.notes)


def test_partitions_between_those_that_were_found_begin_empty_only_if_asked(kafka: Path) -> None:
    (kafka / "t-0").rename(kafka / "t-2")
    with pytest.raises(MigrationError, match="1 partitions of node 1 have no log"):
        importing.survey(DISK, [kafka], without_metadata=True)
    found = importing.survey(DISK, [kafka], without_metadata=True, may_miss_logs=True)
    assert found.plan.empty == [("t", 0)]


def test_without_nodes_two_topics_of_one_name_are_refused(kafka: Path) -> None:
    log_directory(kafka, {("t", 2): (UUID(int=9), {0: b""})}, version=0)
    with pytest.raises(MigrationError, match="the logs of topic t have different ids"):
        importing.survey(DISK, [kafka], without_metadata=True)


def test_nodes_of_another_cluster_are_refused(kafka: Path) -> None:
    other = {**NODES, "/cluster/id": '{"version":"1","id":"another"}'}
    with pytest.raises(MigrationError, match="the nodes are of cluster another, and the directories of"):
        importing.survey(DISK, [kafka], nodes=read_nodes(dumped(other)))


@pytest.mark.parametrize(
    ("path", "data", "reason"),
    [
        ("/brokers/topics/t", "{}", "topic t cannot be read"),
        (
            "/brokers/topics/t",
            '{"version":1,"partitions":{"0":[1]}}',
            "topic t cannot be read: it has no topic id",
        ),
        ("/config/users/bob", '{"config":{"SCRAM-SHA-512":"x"}}', "/config/users/bob cannot be read"),
        ("/latest_producer_id_block", "{}", "/latest_producer_id_block cannot be read"),
        ("/feature", "x", "/feature cannot be read"),
    ],
)
def test_a_node_that_cannot_be_read_is_named(path: str, data: str, reason: str) -> None:
    with pytest.raises(MigrationError, match=reason):
        state_of(read_nodes(dumped({**NODES, path: data})))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"nodes":[{"path":"/"}]}', '{"nodes":[1]}'])
def test_another_file_than_a_dump_is_refused(text: str) -> None:
    with pytest.raises(MigrationError, match="this is not the output of `felice zookeeper export`"):
        read_nodes(text)


def test_bytes_that_are_no_text_come_back() -> None:
    assert read_nodes('{"nodes":[{"path":"/a","data":{"base64":"/w=="}}]}') == {"/a": b"\xff"}
