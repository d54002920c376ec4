"""Directories as Kafka 4.3 and 3.9 leave them, built byte by byte."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from felice.log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, format_offsets
from felice.migration.metadata_records import encode_snapshot, encode_value
from felice.protocol.messages.cluster_metadata import (
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from felice.protocol.schema import schema_of
from felice.protocol.topic_partition import PartitionKey
from felice.protocol.uuids import format_uuid
from felice.records.batch import stamp
from felice.records.builder import build_batch
from felice.records.record import Record

NODE = 1
CLUSTER = "4L6g3nShT-eMCtK--X86sw"
DIRECTORY = UUID(int=1000)
T, U = UUID(int=201), UUID(int=202)
NOW = 1_764_000_000_000


def newest(record: object) -> tuple[object, int]:
    return record, schema_of(type(record)).versions.max


def batch(values: Sequence[bytes | None], offset: int, epoch: int = 1) -> bytes:
    """One batch, which begins at this offset."""
    data = bytearray(build_batch([Record(0, NOW, None, value, ()) for value in values]))
    stamp(data, 0, offset, epoch)
    return bytes(data)


def metadata_log(records: Iterable[object], offset: int = 0) -> bytes:
    """A segment of the metadata log with one record in each batch."""
    return b"".join(batch([encode_value(*newest(record))], at) for at, record in enumerate(records, offset))


def partition(
    topic_id: UUID, number: int = 0, *, leader: int = NODE, isr: Sequence[int] = (NODE,), **others: object
) -> PartitionRecord:
    facts: dict[str, object] = {"replicas": [NODE], "directories": [DIRECTORY], "leader_epoch": 4, **others}
    return PartitionRecord(  # type: ignore[call-arg]
        partition_id=number, topic_id=topic_id, leader=leader, isr=list(isr), **facts
    )


def topic(name: str, topic_id: UUID, count: int = 1) -> list[object]:
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(partition(topic_id, number) for number in range(count)),
    ]


HEAD: list[object] = [
    FeatureLevelRecord(name="metadata.version", feature_level=30),
    FeatureLevelRecord(name="transaction.version", feature_level=2),
    RegisterBrokerRecord(broker_id=NODE, log_dirs=[DIRECTORY]),
]


def log_directory(
    path: Path,
    logs: Mapping[PartitionKey, tuple[UUID, Mapping[int, bytes]]],
    *,
    recovery: Mapping[PartitionKey, int] | None = None,
    directory_id: UUID = DIRECTORY,
    node_id: int = NODE,
    version: int = 1,
    clean: bool = True,
) -> Path:
    """An entry of log.dirs. `logs` are the segments of partitions by base offset."""
    path.mkdir(parents=True, exist_ok=True)
    lines = (
        [
            "version=1",
            f"node.id={node_id}",
            f"cluster.id={CLUSTER}",
            f"directory.id={format_uuid(directory_id)}",
        ]
        if version
        else ["version=0", f"broker.id={node_id}", f"cluster.id={CLUSTER}"]
    )
    (path / "meta.properties").write_text("#\n#Sun Nov 29 19:37:30 UTC 2026\n" + "\n".join(lines) + "\n")
    for key, (topic_id, segments) in logs.items():
        partition_directory(path / "{}-{}".format(*key), topic_id, segments)
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        (path / name).write_text(format_offsets(recovery or dict.fromkeys(logs, 1_000_000)))
    if clean:
        (path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":372}')
    return path


def partition_directory(path: Path, topic_id: UUID, segments: Mapping[int, bytes], epoch: int = 3) -> None:
    path.mkdir(parents=True)
    (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {format_uuid(topic_id)}")
    (path / "leader-epoch-checkpoint").write_text(f"0\n1\n{epoch} {min(segments, default=0)}\n")
    for base, data in segments.items():
        (path / f"{base:020}.log").write_bytes(data)
        (path / f"{base:020}.index").write_bytes(b"")
        (path / f"{base:020}.timeindex").write_bytes(struct.pack(">qi", NOW, 0))


def metadata_directory(
    path: Path,
    segments: Mapping[int, bytes],
    snapshots: Mapping[int, Sequence[object]] | None = None,
    voters: int = 1,
) -> Path:
    """`__cluster_metadata-0` in this entry of log.dirs."""
    directory = path / "__cluster_metadata-0"
    partition_directory(directory, UUID(int=1), segments)
    for offset, records in (snapshots or {}).items():
        data = encode_snapshot([newest(record) for record in records], NOW)
        (directory / f"{offset:020}-0000000001.checkpoint").write_bytes(data)
    listed = ",".join(f'{{"voterId":{number}}}' for number in range(1, voters + 1))
    (directory / "quorum-state").write_text(f'{{"leaderId":1,"currentVoters":[{listed}],"data_version":0}}')
    return directory


def fingerprint(path: Path) -> dict[str, tuple[int, str]]:
    """Everything below a directory: names, times of change and contents."""
    return {
        str(one.relative_to(path)): (
            one.stat().st_mtime_ns,
            hashlib.sha256(one.read_bytes()).hexdigest() if one.is_file() else "",
        )
        for one in sorted([path, *path.rglob("*")])
    }
