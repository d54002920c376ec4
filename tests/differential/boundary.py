"""Requests of any API from their declaration: every field gets a value from a pool that its name chooses.

Requests that would change the broker for other runs are left out: its configuration, its features, its directories.
"""

from __future__ import annotations

import random
from typing import Any

from differential.operation import Operation
from felice.protocol.schema import Field, FieldType, schema_of
from felice.server.handlers.table import OFFERED

_LEFT_OUT = frozenset(
    {
        "UpdateFeatures",
        "AlterReplicaLogDirs",
        "AlterPartitionReassignments",
        "DescribeCluster",
        "ApiVersions",
        "WriteTxnMarkers",
        "JoinGroup",
        "SyncGroup",
        "DescribeLogDirs",
        "DescribeTopicPartitions",
    }
)
_UNKNOWN_ID = "00000000-0000-0000-0000-000000000007"
_ZERO_ID = "00000000-0000-0000-0000-000000000000"

_TOPICS = ("~a", "~a", "~b", "~missing", "", "no name", "..", "n" * 250)
_GROUPS = ("~g", "~h", "~missing", "")
_TRANSACTIONAL_IDS = ("~tx0", "~tx1", "~missing", "")
_TIMEOUTS = (1000, 5000)
# By the field's name; then by its type.
_BY_NAME: dict[str, tuple[Any, ...]] = {
    "topic": _TOPICS,
    "topic_name": _TOPICS,
    "topic_names": _TOPICS,
    "name": _TOPICS,
    "group_id": _GROUPS,
    "groups": _GROUPS,
    "groups_names": _GROUPS,
    "key": _GROUPS,
    "coordinator_keys": _GROUPS,
    "transactional_id": _TRANSACTIONAL_IDS,
    "transactional_ids": _TRANSACTIONAL_IDS,
    "v3_and_below_transactional_id": _TRANSACTIONAL_IDS,
    "member_id": ("", "nobody", {"ref": ["member", "m0"]}),
    "group_instance_id": ("~static", "~other"),
    "partition": (0, 0, 1, 7, -1, 2**31 - 1),
    "partition_index": (0, 0, 1, 7, -1, 2**31 - 1),
    "partition_indexes": (0, 0, 1, 7, -1, 2**31 - 1),
    "partitions": (0, 0, 1, 7, -1, 2**31 - 1),
    "index": (0, 0, 1, 7, -1, 2**31 - 1),
    "producer_id": (-1, 0, 10**9, {"ref": ["pid", "p0"]}),
    "v3_and_below_producer_id": (-1, 0, 10**9, {"ref": ["pid", "p0"]}),
    "producer_epoch": (-1, 0, 5, {"ref": ["epoch", "p0"]}),
    "v3_and_below_producer_epoch": (-1, 0, 5, {"ref": ["epoch", "p0"]}),
    "topic_id": ({"ref": ["topic_id", "~a"]}, _UNKNOWN_ID, _ZERO_ID),
    "timeout_ms": _TIMEOUTS,
    "max_wait_ms": (0, 10),
    "transaction_timeout_ms": (60_000, 0, -1, 2**31 - 1),
    "acks": (-1, 1, 2, -2),
    "replica_id": (-1,),
    "session_id": (0,),
    "session_epoch": (-1, 0),
    "resource_type": (2, 2, 1, 99),
    "resource_name": _TOPICS,
    "num_partitions": (1, 2, 0, -1, -2),
    "count": (1, 2, 0, -1, 3),
    "replication_factor": (1, -1, 0, 2),
    "broker_ids": (0, 1, 1, 5),
    "fetch_offset": (0, 1, -1, 10**9),
    "timestamp": (-1, -2, -3, -4, -5, -6, -100, 0, 2**63 - 1),
    "partition_max_bytes": (0, 1000),
    "max_bytes": (0, 1000),
    "session_timeout_ms": (30_000, 1),
    "isolation_level": (0, 1),
    "allow_auto_topic_creation": (False,),
    "include_documentation": (False,),
    "configuration_keys": ("retention.ms", "no.such"),
    "transactional_id_pattern": ("", ".*", "["),
    "states_filter": ("Stable", "Empty", "x"),
    "types_filter": ("classic", "x"),
    "resource_types": (2, 99),
    "key_type": (0, 1, 9),
    "election_type": (0, 1),
}
_BY_KIND: dict[str, tuple[Any, ...]] = {
    "bool": (False, True),
    "int8": (0, 1, -1, 127),
    "int16": (0, 1, -1, 32767),
    "int32": (0, 1, -1, 2**31 - 1),
    "int64": (0, 1, -1, 2**63 - 1),
    "string": ("", "x", "~x"),
    "bytes": ("", "x"),
    "records": (None, {"batch": {"values": ["b"]}}),
    "uuid": (_ZERO_ID, _UNKNOWN_ID),
    "float64": (0.0,),
    "uint16": (0, 1),
    "uint32": (0, 1),
}
APIS = tuple(sorted(api.name for api in OFFERED.values() if api.name not in _LEFT_OUT))


def operation(chance: random.Random) -> Operation:
    name = chance.choice(APIS)
    api = next(known for known in OFFERED.values() if known.name == name)
    version = chance.randint(max(api.advertised.min, api.accepted.start), api.accepted.stop - 1)
    if name == "Metadata":
        version = max(version, 4)  # before, it creates what it names
    if name == "Produce":
        version = max(version, 3)
    return Operation(name, version, _struct(api.request, version, chance))


def _struct(cls: type[Any], version: int, chance: random.Random) -> dict[str, Any]:
    return {
        field.name: _value(field, field.type, version, chance)
        for field in schema_of(cls).fields
        if version in field.versions and field.tag is None
    }


def _identity(value: Any) -> Any:
    """What a broker may merge by: what comes twice in one request has no defined answer."""
    return next(iter(value.values()), None) if isinstance(value, dict) and "ref" not in value else value


def _value(field: Field, kind: FieldType, version: int, chance: random.Random) -> Any:
    if version in field.nullable and kind is field.type and chance.random() < 0.2:
        return None
    if kind.struct is not None:
        return _struct(kind.struct, version, chance)
    if kind.element is not None:
        count = chance.choice((0, 1, 1, 1, 2))
        values = [_value(field, kind.element, version, chance) for _ in range(count)]
        return [
            value
            for place, value in enumerate(values)
            if _identity(value) not in map(_identity, values[:place])
        ]
    fits = _BY_NAME.get(field.name, _BY_KIND[kind.kind])
    if isinstance(fits[0], str) != (kind.kind == "string") and kind.kind != "uuid":
        fits = _BY_KIND[kind.kind]
    return chance.choice(fits)
