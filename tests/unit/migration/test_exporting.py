"""A store of Felice as records for Kafka, and the way back."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID, uuid4

import pytest

from felice.env import SystemDisk
from felice.log import meta_properties
from felice.metadata import layout
from felice.migration import exporting, felice_store, source_locks
from felice.migration.cluster_state import ClusterState, replay
from felice.migration.errors import MigrationError
from felice.migration.metadata_records import (
    MetadataRecord,
    batches_of,
    committed,
    data_values,
    is_whole_snapshot,
)
from felice.migration.plan import Here, plan_import
from felice.migration.znodes import state_of
from felice.protocol.messages.cluster_metadata import (
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    UserScramCredentialRecord,
)
from felice.security.acl import AclBinding
from unit.migration.kafka_files import (
    CLUSTER,
    DIRECTORY,
    HEAD,
    NODE,
    NOW,
    T,
    U,
    batch,
    log_directory,
    topic,
)
from unit.migration.test_plan import log_of, quota, rule

DISK = SystemDisk()


def config(kind: int, resource: str, name: str, value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


RECORDS = [
    *HEAD,
    *topic("t", T, 2),
    *topic("u", U),
    config(2, "t", "segment.bytes", "1048576"),
    config(4, "", "message.max.bytes", "2000000"),
    config(16, "m", "interval.ms", "30000"),
    quota("producer_byte_rate", 1e6, user="bob", client_id=None),
    quota("consumer_byte_rate", 5.5, user="bob"),
    UserScramCredentialRecord(
        name="bob", mechanism=2, iterations=4096, salt=b"salt", stored_key=b"stored", server_key=b"server"
    ),
    rule(1, "t"),
    rule(2, "t", "User:bob"),
    ProducerIdsRecord(broker_id=1, next_producer_id=3000),
]
LOGS = {
    ("t", 0): (T, {0: batch([b"a"], 0)}),
    ("t", 1): (T, {0: b""}),
    ("u", 0): (U, {0: batch([b"b"], 0)}),
}


@pytest.fixture
def felice(tmp_path: Path) -> Path:
    """A directory of ours, as an import makes it."""
    path = log_directory(tmp_path / "felice", LOGS)
    state = replay(MetadataRecord(offset, record) for offset, record in enumerate(RECORDS))
    found = [log_of("t-0", T), log_of("t-1", T), log_of("u-0", U)]
    felice_store.write(DISK, path, plan_import(state, found, [], Here(NODE, CLUSTER)).nodes)
    return path


def export(*sources: Path, to: Path) -> exporting.ExportSurvey:
    with source_locks.held(sources, "broker") as check:
        found = exporting.survey(DISK, sources)
        exporting.carry_out(DISK, found, [to], uuid4, lambda count: None, NOW, may_link=True, check=check)
    return found


def read_back(path: Path) -> ClusterState:
    snapshot = batches_of((path / "bootstrap.checkpoint").read_bytes(), "file")
    assert is_whole_snapshot(snapshot)
    return replay(committed(data_values(snapshot)))


def bindings(state: ClusterState) -> set[AclBinding]:
    return set(state.acls.values())


def test_what_kafka_is_told_is_what_the_store_says(felice: Path, tmp_path: Path) -> None:
    export(felice, to=tmp_path / "kafka")
    ours, told = state_of(felice_store.read(DISK, felice)), read_back(tmp_path / "kafka")
    assert {one.topic_id: one.name for one in told.topics.values()} == {T: "t", U: "u"}
    assert (told.configs, told.quotas, told.scram) == (ours.configs, ours.quotas, ours.scram)
    assert told.scram["bob"]["SCRAM-SHA-512"].server_key == b"server"
    assert bindings(told) == bindings(ours)
    assert len(bindings(told)) == 2
    assert told.next_producer_id == 3000
    assert told.features["metadata.version"] == 30
    assert told.features["transaction.version"] == 2
    meta = meta_properties.read(DISK, tmp_path / "kafka")
    assert meta is not None
    partitions = [one for known in told.topics.values() for one in known.partitions.values()]
    assert {(one.replicas, one.isr, one.directories, one.leader_epoch) for one in partitions} == {
        ((NODE,), (NODE,), (meta.directory_id,), 6)
    }
    assert (tmp_path / "kafka" / "t-0" / f"{0:020}.log").read_bytes() == LOGS["t", 0][1][0]
    assert not (tmp_path / "kafka" / "metadata").exists()
    assert (tmp_path / "kafka" / ".kafka_cleanshutdown").exists()


def test_options_of_ours_are_left_and_named(felice: Path, tmp_path: Path) -> None:
    nodes = felice_store.read(DISK, felice)
    nodes[layout.broker_config_path(layout.DEFAULT_ENTITY)] = layout.encode_config({"felice.x": "1"})
    state = state_of(nodes)
    plan = exporting.bootstrap.plan_export(state, NODE, {}, uuid4)
    assert [(one.kind, one.name) for one in plan.left] == [("configuration", ": felice.x")]
    assert not any(isinstance(one, ConfigRecord) and one.resource_type == 4 for one, _ in plan.records)


def test_a_directory_without_its_metadata_is_refused(felice: Path, tmp_path: Path) -> None:
    other = log_directory(tmp_path / "other", {}, directory_id=UUID(int=3))
    with pytest.raises(MigrationError, match="other has no metadata: name the first of log.dirs"):
        export(other, felice, to=tmp_path / "kafka")
    export(felice, other, to=tmp_path / "kafka")


def test_a_forgotten_directory_is_noticed(felice: Path, tmp_path: Path) -> None:
    (felice / "t-1").rename(tmp_path / "t-1")
    with pytest.raises(MigrationError, match="1 partitions have no log .* such as t-1; name all"):
        export(felice, to=tmp_path / "kafka")


def test_a_partition_of_other_nodes_stays_offline(felice: Path) -> None:
    """An import leaves such partitions if the node had only some of a topic's."""
    nodes = felice_store.read(DISK, felice)
    node = layout.TopicNode(T, {0: (NODE,), 1: (2, 3)}, {}, {})
    nodes[layout.topic_path("t")] = layout.encode_topic(node)
    nodes[layout.state_path("t", 1)] = layout.encode_state(layout.StateNode(-1, 4, 0, (2,)))
    plan = exporting.bootstrap.plan_export(state_of(nodes), NODE, {("t", 0): DIRECTORY}, uuid4)
    one = next(one for one, _ in plan.records if isinstance(one, PartitionRecord) and one.partition_id == 1)
    assert (one.replicas, one.isr, one.leader) == ([2, 3], [2], -1)
    assert len(one.directories) == 2


def test_logs_without_a_topic_are_named(felice: Path, tmp_path: Path) -> None:
    log_directory(felice, {("gone", 0): (UUID(int=99), {0: b""})})
    found = export(felice, to=tmp_path / "kafka")
    assert [(one.kind, Path(one.name).name) for one in found.left] == [("directory", "gone-0")]
    assert not (tmp_path / "kafka" / "gone-0").exists()


def test_a_damaged_store_is_refused(felice: Path, tmp_path: Path) -> None:
    snapshot = felice / "metadata" / "snapshot"
    snapshot.write_bytes(snapshot.read_bytes()[:-1] + b"x")
    with pytest.raises(MigrationError, match="the snapshot is damaged"):
        export(felice, to=tmp_path / "kafka")
    assert not (tmp_path / "kafka").exists()


def test_the_store_of_an_import_is_one_that_a_broker_reads(felice: Path) -> None:
    nodes = felice_store.read(DISK, felice)
    assert nodes["/brokers"] == b""
    assert layout.decode_cluster_id(nodes["/cluster/id"]) == CLUSTER
    assert DIRECTORY.bytes not in b"".join(nodes.values())
