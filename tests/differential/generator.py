"""Random operations from a seed: first topics, then operations on them, on groups and in transactions.

`random_operations(seed, length)` depends on its arguments alone. Most operations are requests that clients send;
`boundary` makes requests of any API from its declaration, with values at the edges and meaningless names.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from conformance.wire import api_named
from differential import boundary
from differential.batches import BREAKS
from differential.operation import MAIN, Operation
from differential.plain import fit

Body = dict[str, Any]

TOPICS = ("~a", "~b", "~c")
GROUPS = ("~g", "~h")
MEMBERS = ("m0", "m1", "m2")
STATIC = {"m2": "~static"}
PRODUCERS = {"p0": "~tx0", "p1": "~tx1", "p2": None}
PROTOCOLS = ("range", "roundrobin", "sticky")
GROUP_OF_MEMBERS = "~g"
_FENCED_EPOCH = -1
_SHORT_TIMEOUT_MS, _TIMED_OUT_AFTER_S = 1000, 1.8


class OperationGenerator:
    """Chooses operations. It never sees the brokers' answers: operations refer to them by symbols (`operation.py`)."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.flow = {slot: self.random.choice((1, 2)) for slot in PRODUCERS}

    def choose(self, *values: Any) -> Any:
        return self.random.choice(values)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def operation(
        self, api: str, body: Body, versions: tuple[int, int] | None = None, **fields: Any
    ) -> Operation:
        known = api_named(api)
        low, high = versions or (known.advertised.min, known.advertised.max)
        version = self.random.randint(max(low, known.accepted.start), min(high, known.accepted.stop - 1))
        return Operation(api, version, fit(known.request, body, version), **fields)

    # Names

    def topic(self) -> str:
        return str(self.choose("~a", "~a", "~a", "~b", "~b", "~c", "~c", "~missing"))

    def partition(self) -> int:
        return int(self.choose(0, 0, 0, 0, 1, 1, 2, -1))

    def group(self) -> str:
        return str(self.choose("~g", "~g", "~h", "~missing"))

    def named(self, topic: str) -> Body:
        """A topic by name and id: the version decides which travels."""
        return {"name": topic, "topic": topic, "topic_id": {"ref": ["topic_id", topic]}}

    # Topics and records

    def create_topics(self) -> Operation:
        return self.operation(
            "CreateTopics",
            {
                "topics": [self._new_topic(self.topic())],
                "timeout_ms": 10_000,
                "validate_only": self.chance(0.1),
            },
        )

    def _new_topic(self, name: str) -> Body:
        configs = [
            {"name": key, "value": value}
            for key, value in (
                ("cleanup.policy", self.choose("delete", "compact")),
                ("message.timestamp.type", self.choose("CreateTime", "LogAppendTime")),
                ("max.message.bytes", self.choose("300", "1000000")),
                ("compression.type", self.choose("producer", "gzip", "uncompressed")),
            )
            if self.chance(0.2)
        ]
        return {
            "name": name,
            "num_partitions": self.choose(1, 2, 2, 3, 0) if self.chance(0.8) else -1,
            "replication_factor": self.choose(1, 1, 1, -1, 2),
            "configs": configs,
        }

    def delete_topics(self) -> Operation:
        name = self.topic()
        return self.operation(
            "DeleteTopics",
            {
                "topic_names": [name],
                "topics": [{"name": name}]
                if self.chance(0.7)
                else [{"topic_id": {"ref": ["topic_id", name]}}],
                "timeout_ms": 10_000,
            },
        )

    def create_partitions(self) -> Operation:
        topic = {"name": self.topic(), "count": self.choose(1, 2, 3, 4, -1), "assignments": None}
        return self.operation(
            "CreatePartitions",
            {"topics": [topic], "timeout_ms": 10_000, "validate_only": self.chance(0.2)},
        )

    def alter_configs(self) -> Operation:
        name = self.choose(
            "retention.ms", "cleanup.policy", "max.message.bytes", "min.insync.replicas", "no.such"
        )
        value = self.choose("1", "-1", "1000", "compact", "delete", "", "x", None)
        config = {"name": name, "value": value, "config_operation": self.choose(0, 0, 1, 2, 3, 9)}
        return self.operation(
            self.choose("IncrementalAlterConfigs", "IncrementalAlterConfigs", "AlterConfigs"),
            {
                "resources": [{"resource_type": 2, "resource_name": self.topic(), "configs": [config]}],
                "validate_only": self.chance(0.2),
            },
        )

    def describe_configs(self) -> Operation:
        keys = ["retention.ms", "cleanup.policy", "max.message.bytes", "min.insync.replicas", "no.such"]
        resource = {"resource_type": 2, "resource_name": self.topic(), "configuration_keys": keys}
        return self.operation(
            "DescribeConfigs",
            {"resources": [resource], "include_synonyms": self.chance(0.5), "include_documentation": False},
        )

    def metadata(self) -> Operation:
        names: list[Body] | None = [{"name": name} for name in self.random.sample(TOPICS, self.choose(1, 2))]
        if self.chance(0.2):
            names = [{"name": None, "topic_id": {"ref": ["topic_id", self.topic()]}}]
        return self.operation(
            "Metadata",
            {"topics": names, "allow_auto_topic_creation": False},
            (4, 13) if names and names[0]["name"] else (10, 13),
        )

    def describe_topic_partitions(self) -> Operation:
        cursor = (
            {"topic_name": self.topic(), "partition_index": self.partition()} if self.chance(0.4) else None
        )
        return self.operation(
            "DescribeTopicPartitions",
            {
                "topics": [{"name": name} for name in self.random.sample(TOPICS, self.choose(1, 2))],
                "response_partition_limit": self.choose(1, 2, 2000, 0, -1),
                "cursor": cursor,
            },
        )

    def batch(self, **fields: Any) -> Body:
        codec = self.choose(0, 0, 0, 1, 2, 3, 4)
        broken = self.choose(*BREAKS) if self.chance(0.08) else ""
        values = [self.choose("v", "w" * 10, "x" * 400) for _ in range(self.choose(1, 1, 2, 3))]
        age_ms = self.choose(0, 0, 0, 5, 1000, -1000)
        key = self.choose("k", "k", "l", None)
        return {
            "batch": {
                "values": values,
                "codec": codec,
                "break": broken,
                "age_ms": age_ms,
                "key": key,
                **fields,
            }
        }

    def _produce(
        self, topic: str, partition: int, records: Body, versions: tuple[int, int], tx: Any = None
    ) -> Operation:
        data = {"index": partition, "records": records}
        acks = -1 if tx or self.chance(0.8) else self.choose(1, 0, 2)
        return self.operation(
            "Produce",
            {
                "transactional_id": tx,
                "acks": acks,
                "timeout_ms": 5000,
                "topic_data": [{**self._by_either(topic), "partition_data": [data]}],
            },
            versions,
        )

    def _by_either(self, topic: str) -> Body:
        return {"name": topic, "topic_id": {"ref": ["topic_id", topic]}}

    def produce(self) -> Operation:
        return self._produce(self.topic(), self.partition(), self.batch(), (3, 13))

    def produce_idempotent(self) -> Operation:
        topic, partition = self.topic(), self.partition()
        delta = self.choose(0, 0, 0, 0, -1, 1)
        epoch = self.choose(0, 0, 0, 0, _FENCED_EPOCH, 1)
        records = self._owned_batch("p2", topic, partition, delta, epoch)
        return self._produce(topic, partition, records, (3, 13))

    def _owned_batch(
        self, slot: str, topic: str, partition: int, delta: int = 0, epoch: int = 0, **fields: Any
    ) -> Body:
        return self.batch(
            pid={"ref": ["pid", slot]},
            epoch={"ref": ["epoch", slot, epoch]},
            seq={"ref": ["seq", slot, topic, partition, delta]},
            **fields,
        )

    def fetch(self) -> Operation:
        topic = self.topic()
        partition = {
            "partition": self.partition(),
            "current_leader_epoch": self.choose(-1, -1, -1, 0, 1),
            "fetch_offset": self.choose(0, 0, 0, 1, 2, 5, 100, -1, -2, 2**63 - 1),
            "last_fetched_epoch": -1,
            "partition_max_bytes": self.choose(1, 100, 1 << 20, 0),
        }
        slot = self.choose("", "", "f0")
        session = {"session_id": 0, "session_epoch": -1}
        if slot:
            session = {"session_id": {"ref": ["session", slot]}, "session_epoch": self.choose(0, 1, 2)}
        return self.operation(
            "Fetch",
            {
                "replica_id": -1,
                "max_wait_ms": self.choose(0, 0, 5),
                "min_bytes": self.choose(0, 1),
                "max_bytes": self.choose(1, 100, 1 << 20),
                "isolation_level": self.choose(0, 1),
                **session,
                "topics": [
                    {"topic": topic, "topic_id": {"ref": ["topic_id", topic]}, "partitions": [partition]}
                ],
            },
            slot=slot,
        )

    def list_offsets(self) -> Operation:
        timestamp = self.choose(-1, -2, -3, -4, -5, 0, -7, {"time": 0}, {"time": -500}, {"time": 10**6})
        partition = {
            "partition_index": self.partition(),
            "current_leader_epoch": self.choose(-1, -1, 0, 1),
            "timestamp": timestamp,
        }
        return self.operation(
            "ListOffsets",
            {
                "replica_id": -1,
                "isolation_level": self.choose(0, 1),
                "topics": [{"name": self.topic(), "partitions": [partition]}],
                "timeout_ms": 1000,
            },
        )

    def offset_for_leader_epoch(self) -> Operation:
        partition = {
            "partition": self.partition(),
            "current_leader_epoch": self.choose(-1, 0, 1),
            "leader_epoch": self.choose(-1, 0, 1, 5),
        }
        topic = {"topic": self.topic(), "partitions": [partition]}
        return self.operation("OffsetForLeaderEpoch", {"topics": [topic]})

    def delete_records(self) -> Operation:
        partition = {"partition_index": self.partition(), "offset": self.choose(-1, 0, 1, 2, 1000, -2)}
        topic = {"name": self.topic(), "partitions": [partition]}
        return self.operation("DeleteRecords", {"topics": [topic], "timeout_ms": 1000})

    def describe_producers(self) -> Operation:
        topic = {"name": self.topic(), "partition_indexes": [self.partition()]}
        return self.operation("DescribeProducers", {"topics": [topic]})

    def describe_log_dirs(self) -> Operation:
        topic = {"topic": self.topic(), "partitions": [self.partition()]}
        return self.operation("DescribeLogDirs", {"topics": [topic]})

    def elect_leaders(self) -> Operation:
        topic = {"topic": self.topic(), "partitions": [self.partition()]}
        body = {"election_type": self.choose(0, 1), "topic_partitions": [topic], "timeout_ms": 1000}
        return self.operation("ElectLeaders", body)

    def list_reassignments(self) -> Operation:
        topics = [{"name": self.topic(), "partition_indexes": [self.partition()]}]
        return self.operation("ListPartitionReassignments", {"timeout_ms": 1000, "topics": topics})

    # Groups

    def join(self) -> Operation:
        slot = self.choose(*MEMBERS)
        instance = STATIC.get(slot)
        names = self.random.sample(PROTOCOLS, self.choose(1, 2, 2, 3))
        protocol_type = "consumer" if self.chance(0.95) else "connect"
        return self.operation(
            "JoinGroup",
            {
                "group_id": GROUP_OF_MEMBERS,
                "session_timeout_ms": 30_000,
                "rebalance_timeout_ms": 30_000,
                "member_id": self._member_id(slot),
                "group_instance_id": instance,
                "protocol_type": protocol_type,
                "protocols": [{"name": name, "metadata": self._metadata(protocol_type)} for name in names],
            },
            (5, 9) if instance else None,
            lane=slot,
            slot=slot,
        )

    def _member_id(self, slot: str) -> Any:
        share = 0.5 if slot in STATIC else 0.05
        if self.chance(share):
            return ""
        return {"ref": ["member", slot]} if self.chance(0.97) else "nobody"

    def _metadata(self, protocol_type: str) -> str:
        """A consumer's is a subscription of version 0, to a topic that no run creates."""
        version, count, name, user_data = "\0\0", "\0\0\0\1", "\0\1" + self.choose("x", "y"), "\0\0\0\0"
        return version + count + name + user_data if protocol_type == "consumer" else "opaque"

    def _generation(self, slot: str) -> Body:
        return {"ref": ["generation", slot, self.choose(0, 0, 0, 0, 0, 1, -1)]}

    def sync(self) -> Operation:
        slot = self.choose(*MEMBERS)
        assignments = [
            {"member_id": {"ref": ["member", name]}, "assignment": f"for {name}"} for name in MEMBERS
        ]
        return self.operation(
            "SyncGroup",
            {
                "group_id": GROUP_OF_MEMBERS,
                "generation_id": self._generation(slot),
                "member_id": {"ref": ["member", slot]},
                "group_instance_id": STATIC.get(slot),
                "protocol_type": self.choose("consumer", "consumer", None, "x"),
                "protocol_name": None,
                "assignments": assignments if self.chance(0.8) else [],
            },
            (3, 5) if slot in STATIC else None,
            lane=slot,
            slot=slot,
        )

    def heartbeat(self) -> Operation:
        slot = self.choose(*MEMBERS)
        return self.operation(
            "Heartbeat",
            {
                "group_id": self.choose(GROUP_OF_MEMBERS, GROUP_OF_MEMBERS, "~missing"),
                "generation_id": self._generation(slot),
                "member_id": {"ref": ["member", slot]},
                "group_instance_id": STATIC.get(slot),
            },
        )

    def leave(self) -> Operation:
        slot = self.choose(*MEMBERS)
        by_instance = slot in STATIC and self.chance(0.5)
        member = {
            "member_id": "" if by_instance else {"ref": ["member", slot]},
            "group_instance_id": STATIC.get(slot),
        }
        return self.operation(
            "LeaveGroup",
            {"group_id": GROUP_OF_MEMBERS, "member_id": {"ref": ["member", slot]}, "members": [member]},
        )

    def refused_metadata(self) -> list[Operation]:
        """Behind a commit that makes the group: Kafka shows no group of which nothing was ever stored."""
        group = self.group()

        def commit(metadata: str) -> Operation:
            partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": metadata}
            topics = [{**self._by_either("~a"), "partitions": [partition]}]
            return self.operation("OffsetCommit", {"group_id": group, "topics": topics})

        return [commit(""), commit("m" * 5000)]

    def offset_commit(self) -> Operation:
        topic, slot = self.topic(), self.choose(*MEMBERS)
        partition = {
            "partition_index": self.partition(),
            "committed_offset": self.choose(0, 1, 5, -1, 10**12),
            "committed_leader_epoch": self.choose(-1, 0),
            "committed_metadata": self.choose("", "m", None) if self.chance(0.3) else "",
        }
        member: Body = {"generation_id_or_member_epoch": -1, "member_id": ""}
        if self.chance(0.5):
            member = {
                "generation_id_or_member_epoch": self._generation(slot),
                "member_id": {"ref": ["member", slot]},
                "group_instance_id": STATIC.get(slot),
            }
        return self.operation(
            "OffsetCommit",
            {
                "group_id": self.group(),
                **member,
                "topics": [{**self._by_either(topic), "partitions": [partition]}],
            },
        )

    def offset_fetch(self) -> Operation:
        group, topic = self.group(), self.topic()
        partitions = [0, 1, self.partition()]
        some = None if self.chance(0.3) else [{**self._by_either(topic), "partition_indexes": partitions}]
        version = self.random.randint(2, 10)
        old = None if some is None else [{"name": topic, "partition_indexes": partitions}]
        return self.operation(
            "OffsetFetch",
            {
                "group_id": group,
                "topics": old,
                "groups": [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": some}],
                "require_stable": self.chance(0.5),
            },
            (version, version),
        )

    def offset_delete(self) -> Operation:
        topic = {"name": self.topic(), "partitions": [{"partition_index": self.partition()}]}
        return self.operation("OffsetDelete", {"group_id": self.group(), "topics": [topic]})

    def describe_groups(self) -> Operation:
        return self.operation(
            "DescribeGroups", {"groups": [self.group()], "include_authorized_operations": False}
        )

    def list_groups(self) -> Operation:
        states = self.choose([], [], ["Stable"], ["empty"], ["nonsense"])
        return self.operation(
            "ListGroups",
            {"states_filter": states, "types_filter": self.choose([], ["classic"], ["consumer"])},
        )

    def delete_groups(self) -> Operation:
        return self.operation("DeleteGroups", {"groups_names": [self.group()]})

    def find_coordinator(self) -> Operation:
        key = self.choose("~g", "~tx0", "")
        return self.operation(
            "FindCoordinator", {"key": key, "key_type": self.choose(0, 1), "coordinator_keys": [key, "~x"]}
        )

    # Transactions

    def _slot(self) -> str:
        return str(self.choose("p0", "p0", "p1"))

    def init_producer_id(self) -> Operation:
        slot = self.choose("p0", "p0", "p1", "p2")
        body: Body = {
            "transactional_id": PRODUCERS[slot],
            "transaction_timeout_ms": self.choose(60_000, 60_000, 60_000, 0, 10**9),
        }
        if self.chance(0.4):
            body |= {
                "producer_id": {"ref": ["pid", slot]},
                "producer_epoch": {"ref": ["epoch", slot, self.choose(0, 0, -1, 1)]},
            }
        return self.operation("InitProducerId", body, slot=slot)

    def _identity(self, slot: str) -> Body:
        return {
            "transactional_id": PRODUCERS[slot] if self.chance(0.97) else "~missing",
            "producer_id": {"ref": ["pid", slot]},
            "producer_epoch": {"ref": ["epoch", slot, self.choose(0, 0, 0, 0, 0, 0, -1, 1)]},
        }

    def add_partitions(self) -> Operation:
        slot = self._slot()
        names = self.random.sample((*TOPICS, "~missing"), self.choose(1, 1, 2))
        topics = [{"name": name, "partitions": [self.choose(0, 0, 1, 5)]} for name in names]
        one = self._identity(slot)
        body = {f"v3_and_below_{name}": value for name, value in (one | {"topics": topics}).items()}
        body["transactions"] = [one | {"topics": topics, "verify_only": self.chance(0.6)}]
        return self.operation("AddPartitionsToTxn", body, (0, 3) if self.chance(0.8) else (4, 5))

    def add_offsets(self) -> Operation:
        return self.operation("AddOffsetsToTxn", {**self._identity(self._slot()), "group_id": self.group()})

    def txn_offset_commit(self) -> Operation:
        slot, member = self._slot(), self.choose(*MEMBERS)
        partition = {
            "partition_index": self.choose(0, 0, 1, 9),
            "committed_offset": self.choose(3, 7),
            "committed_metadata": "",
        }
        body = {
            **self._identity(slot),
            "group_id": self.group(),
            "topics": [{"name": self.topic(), "partitions": [partition]}],
        }
        if self.chance(0.3):
            body |= {"generation_id": self._generation(member), "member_id": {"ref": ["member", member]}}
        return self.operation("TxnOffsetCommit", body)

    def produce_transactional(self) -> Operation:
        slot, topic, partition = self._slot(), self.topic(), self.choose(0, 0, 1)
        epoch = self.choose(0, 0, 0, 0, 0, 0, -1, 1)
        delta = self.choose(0, 0, 0, 0, 0, 0, 0, -1, 1)
        records = self._owned_batch(slot, topic, partition, delta, epoch, transactional=self.chance(0.95))
        versions = (12, 13) if self.flow[slot] == 2 else (3, 11)
        return self._produce(topic, partition, records, versions, PRODUCERS[slot])

    def end_txn(self) -> Operation:
        slot = self._slot()
        versions = (5, 5) if self.flow[slot] == 2 else (0, 4)
        if self.chance(0.05):
            versions = (0, 5)
        return self.operation(
            "EndTxn", {**self._identity(slot), "committed": self.chance(0.6)}, versions, slot=slot
        )

    def time_out(self) -> list[Operation]:
        """A transaction that ends by its timeout, and its producer's next request."""
        slot = self._slot()
        init = {"transactional_id": PRODUCERS[slot], "transaction_timeout_ms": _SHORT_TIMEOUT_MS}
        held = {"producer_id": {"ref": ["pid", slot]}, "producer_epoch": {"ref": ["epoch", slot]}}
        topic = {"name": "~a", "partitions": [0]}
        identity = {"transactional_id": PRODUCERS[slot], **held}
        v1 = {f"v3_and_below_{name}": value for name, value in (identity | {"topics": [topic]}).items()}
        records = self._owned_batch(slot, "~a", 0, transactional=True)
        begin = (
            self._produce("~a", 0, records, (12, 13), PRODUCERS[slot])
            if self.chance(0.5)
            else self.operation("AddPartitionsToTxn", v1, (0, 3))
        )
        described = self.describe_transactions()
        after = [
            self.operation(
                "InitProducerId", init | {"transaction_timeout_ms": 60_000} | held, (3, 5), slot=slot
            ),
            self.operation("EndTxn", {**identity, "committed": self.chance(0.5)}, slot=slot),
            self._produce("~a", 0, records, (3, 13), PRODUCERS[slot]),
        ]
        self.random.shuffle(after)
        return [
            # Twice: the first request may only end what is open.
            *(self.operation("InitProducerId", init, slot=slot) for _ in range(2)),
            begin,
            Operation(described.api, described.version, described.body, pause_s=_TIMED_OUT_AFTER_S),
            *after[: self.choose(1, 2, 3)],
            *(
                self.operation("InitProducerId", init | {"transaction_timeout_ms": 60_000}, slot=slot)
                for _ in range(2)
            ),
        ]

    def describe_transactions(self) -> Operation:
        return self.operation("DescribeTransactions", {"transactional_ids": ["~tx0", "~tx1", "~missing"]})

    def list_transactions(self) -> Operation:
        return self.operation(
            "ListTransactions",
            {
                "state_filters": self.choose([], ["Ongoing"], ["Empty", "nonsense"]),
                "producer_id_filters": [],
                "duration_filter": self.choose(-1, 0, 10**9),
                "transactional_id_pattern": self.choose(None, "", ".*tx0", "[", "(a"),
            },
        )

    # Anything

    def at_the_boundary(self) -> Operation:
        return boundary.operation(self.random)

    def mutilated(self) -> Operation:
        whole = self.choose(*_MUTILATED)(self)
        return Operation(whole.api, whole.version, whole.body, MAIN, cut=self.choose(1, 2, 5, -1, -7))


Step = Callable[[OperationGenerator], Operation | list[Operation]]

_STEPS: tuple[tuple[int, Step], ...] = (
    (8, OperationGenerator.produce),
    (6, OperationGenerator.produce_idempotent),
    (10, OperationGenerator.produce_transactional),
    (10, OperationGenerator.fetch),
    (6, OperationGenerator.list_offsets),
    (2, OperationGenerator.offset_for_leader_epoch),
    (3, OperationGenerator.delete_records),
    (3, OperationGenerator.describe_producers),
    (1, OperationGenerator.describe_log_dirs),
    (1, OperationGenerator.elect_leaders),
    (1, OperationGenerator.list_reassignments),
    (2, OperationGenerator.create_topics),
    (1, OperationGenerator.delete_topics),
    (2, OperationGenerator.create_partitions),
    (3, OperationGenerator.alter_configs),
    (3, OperationGenerator.describe_configs),
    (4, OperationGenerator.metadata),
    (3, OperationGenerator.describe_topic_partitions),
    (10, OperationGenerator.join),
    (10, OperationGenerator.sync),
    (5, OperationGenerator.heartbeat),
    (3, OperationGenerator.leave),
    (7, OperationGenerator.offset_commit),
    (1, OperationGenerator.refused_metadata),
    (6, OperationGenerator.offset_fetch),
    (2, OperationGenerator.offset_delete),
    (4, OperationGenerator.describe_groups),
    (2, OperationGenerator.list_groups),
    (2, OperationGenerator.delete_groups),
    (2, OperationGenerator.find_coordinator),
    (8, OperationGenerator.init_producer_id),
    (5, OperationGenerator.add_partitions),
    (3, OperationGenerator.add_offsets),
    (6, OperationGenerator.txn_offset_commit),
    (8, OperationGenerator.end_txn),
    (1, OperationGenerator.time_out),
    (4, OperationGenerator.describe_transactions),
    (2, OperationGenerator.list_transactions),
    (14, OperationGenerator.at_the_boundary),
    (2, OperationGenerator.mutilated),
)
_MUTILATED: tuple[Callable[[OperationGenerator], Operation], ...] = (
    OperationGenerator.produce,
    OperationGenerator.fetch,
    OperationGenerator.list_offsets,
    OperationGenerator.metadata,
    OperationGenerator.offset_commit,
    OperationGenerator.describe_groups,
    OperationGenerator.create_topics,
)


def random_operations(seed: str, length: int) -> Iterator[Operation]:
    """Creates the topics and the producers, then yields `length` random steps, each of one or a few operations."""
    generator = OperationGenerator(seed)
    yield from prepare(generator)
    for _ in range(length):
        yield from random_step(generator)


def prepare(generator: OperationGenerator) -> Iterator[Operation]:
    """Creates the topics and the producers."""
    yield generator.operation(
        "CreateTopics",
        {
            "topics": [generator._new_topic(name) | {"replication_factor": 1} for name in TOPICS],
            "timeout_ms": 10_000,
        },
    )
    for slot in PRODUCERS:
        yield generator.operation(
            "InitProducerId",
            {"transactional_id": PRODUCERS[slot], "transaction_timeout_ms": 60_000},
            slot=slot,
        )


def random_step(generator: OperationGenerator) -> list[Operation]:
    """One operation, or a few that belong together."""
    weights, steps = zip(*_STEPS, strict=True)
    (step,) = generator.random.choices(steps, weights)
    made = step(generator)
    return made if isinstance(made, list) else [made]
