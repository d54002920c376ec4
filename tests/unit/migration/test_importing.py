"""Whole directories, imported: what lies in the new one, and that the old one and a killed import leave nothing."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from felice.config import TopicConfig
from felice.env import SystemClock, SystemDisk
from felice.log import checkpoints, meta_properties
from felice.log.directory import LogDirectory
from felice.metadata import layout
from felice.metadata.store_files import load_tree
from felice.migration import importing, new_directories, source_locks
from felice.migration.errors import MigrationError
from felice.migration.importing import ImportSurvey
from felice.migration.kafka_directory import read_metadata
from felice.migration.transfer import Transferred
from felice.protocol.codec import encode, encode_data
from felice.protocol.messages.cluster_metadata import TopicRecord, Voter, VotersRecord
from felice.protocol.messages.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from felice.records.batch import Attributes, BatchHeader, write_header
from felice.records.builder import build_batch
from felice.records.control import ControlType
from felice.records.record import Record
from felice.server.membership.identity import check_may_begin
from felice.server.startup import StartupError
from unit.migration.kafka_files import (
    CLUSTER,
    DIRECTORY,
    HEAD,
    NODE,
    NOW,
    T,
    U,
    batch,
    fingerprint,
    log_directory,
    metadata_directory,
    metadata_log,
    partition,
    topic,
)

DISK = SystemDisk()
RECORDS = [*HEAD, *topic("t", T), *topic("u", U)]
SEGMENTS = {0: batch([b"a", b"b"], 0), 2: batch([b"c"], 2), 3: batch([b"d", b"e"], 3)}


@pytest.fixture
def kafka(tmp_path: Path) -> Path:
    """One entry of log.dirs with two topics. Everything below offset 5 of t-0 is on disk."""
    path = log_directory(
        tmp_path / "kafka",
        {("t", 0): (T, SEGMENTS), ("u", 0): (U, {0: b""})},
        recovery={("t", 0): 5, ("u", 0): 0},
    )
    metadata_directory(path, {0: metadata_log(RECORDS)})
    return path


def carry_out(
    *sources: Path,
    to: Path | list[Path],
    on_bytes: Callable[[int], object] = lambda count: None,
    links: bool = True,
    **options: Any,
) -> tuple[ImportSurvey, Transferred]:
    targets = [to] if isinstance(to, Path) else to
    with source_locks.held(sources, "Kafka") as check:
        found = importing.survey(DISK, sources, **options)
        ids = iter(range(1, 100))
        done = importing.carry_out(
            DISK, found, targets, lambda: UUID(int=next(ids)), on_bytes, may_link=links, check=check
        )
    return found, done


def logs_of(path: Path) -> Mapping[tuple[str, int], tuple[int, int]]:
    """Opens a directory as a broker does: first and next offset of each partition."""
    directory = LogDirectory(DISK, SystemClock(), path)
    directory.acquire(node_id=NODE, cluster_id=CLUSTER, new_directory_id=UUID(int=9))
    try:
        directory.load(lambda name: TopicConfig())
        assert directory.failed == {}
        return {key: (log.log_start_offset, log.log_end_offset) for key, log in directory.logs.items()}
    finally:
        directory.abandon()


def test_a_directory_comes_whole_and_the_source_stays(kafka: Path, tmp_path: Path) -> None:
    before = fingerprint(kafka)
    found, done = carry_out(kafka, to=tmp_path / "felice")
    assert fingerprint(kafka) == before
    assert found.plan.counts == {"topics": 2, "partitions": 2, "configurations": 0}
    new = tmp_path / "felice"
    meta = meta_properties.read(DISK, new)
    assert meta is not None
    assert (meta.node_id, meta.cluster_id) == (NODE, CLUSTER)
    assert meta.directory_id != DIRECTORY
    tree = load_tree(DISK, new / "metadata")
    assert layout.decode_topic(tree.get("/brokers/topics/t").data).topic_id == T
    assert layout.decode_cluster_id(tree.get("/cluster/id").data) == CLUSTER
    assert tree.children("/brokers/topics") == ["t", "u"]
    assert (new / "metadata").stat().st_mode & 0o077 == 0
    assert (new / ".kafka_cleanshutdown").exists()
    assert logs_of(new) == {("t", 0): (0, 5), ("u", 0): (0, 0)}
    assert list(tmp_path.glob(".*")) == []
    assert done.copied_bytes + done.linked_bytes > 0


def test_only_closed_segments_are_shared(kafka: Path, tmp_path: Path) -> None:
    _, done = carry_out(kafka, to=tmp_path / "felice")
    links = {path.name: path.stat().st_nlink for path in (tmp_path / "felice" / "t-0").iterdir()}
    assert [name for name, count in sorted(links.items()) if count == 2] == [f"{0:020}.log", f"{2:020}.log"]
    assert done.linked_bytes == len(SEGMENTS[0]) + len(SEGMENTS[2])
    files = [path for name in ("t-0", "u-0") for path in (tmp_path / "felice" / name).iterdir()]
    assert done.copied_bytes == sum(path.stat().st_size for path in files if path.stat().st_nlink == 1)
    _, done = carry_out(kafka, to=tmp_path / "copy", links=False)
    assert done.linked_bytes == 0
    assert all(path.stat().st_nlink == 1 for path in (tmp_path / "copy" / "t-0").iterdir())


def test_a_broker_that_recovers_leaves_the_source_as_it_is(kafka: Path, tmp_path: Path) -> None:
    """The end of the log is torn, and the indexes hold zeros: the broker cuts and builds them in its own files."""
    (kafka / ".kafka_cleanshutdown").unlink()
    active = kafka / "t-0" / f"{3:020}"
    active.with_suffix(".log").write_bytes(SEGMENTS[3] + batch([b"f" * 99], 5)[:-1])
    active.with_suffix(".index").write_bytes(bytes(10_485_760))
    before = fingerprint(kafka)
    found, _ = carry_out(kafka, to=tmp_path / "felice")
    assert any("was not closed cleanly" in note for note in found.notes)
    assert not (tmp_path / "felice" / "t-0" / f"{3:020}.index").exists()
    assert logs_of(tmp_path / "felice")["t", 0] == (0, 5)
    assert fingerprint(kafka) == before


def test_several_directories_come_into_one_or_into_as_many(kafka: Path, tmp_path: Path) -> None:
    second = UUID(int=1001)
    two = log_directory(
        tmp_path / "two", {("u", 1): (U, {0: batch([b"x"], 0)})}, directory_id=second, recovery={("u", 1): 1}
    )
    extra = partition(U, 1, directories=[second])
    log = kafka / "__cluster_metadata-0" / f"{0:020}.log"
    log.write_bytes(metadata_log([*RECORDS, extra]))
    with pytest.raises(MigrationError, match=r"1 partitions of node 1 have no log .*: u-1"):
        carry_out(kafka, to=tmp_path / "missing")
    carry_out(kafka, two, to=tmp_path / "all")
    assert logs_of(tmp_path / "all").keys() == {("t", 0), ("u", 0), ("u", 1)}
    carry_out(kafka, two, to=[tmp_path / "a", tmp_path / "b"])
    assert (logs_of(tmp_path / "a").keys(), logs_of(tmp_path / "b").keys()) == (
        {("t", 0), ("u", 0)},
        {("u", 1)},
    )
    assert not (tmp_path / "b" / "metadata").exists()
    with pytest.raises(MigrationError, match="2 directories are read and 3 are to be made"):
        carry_out(kafka, two, to=[tmp_path / name for name in "xyz"])


def test_offsets_of_an_older_topic_of_the_name_do_not_come(kafka: Path, tmp_path: Path) -> None:
    """They are in the checkpoints of another directory, which comes into the same one."""
    key = ("t", 0)
    two = log_directory(
        tmp_path / "two", {key: (UUID(int=99), {0: b""})}, directory_id=UUID(int=1001), recovery={key: 99}
    )
    carry_out(kafka, two, to=tmp_path / "all")
    for name in (checkpoints.RECOVERY_POINTS, checkpoints.HIGH_WATERMARKS):
        assert checkpoints.parse((tmp_path / "all" / name).read_text()) == {key: 5, ("u", 0): 0}


def test_the_newest_whole_snapshot_and_the_log_behind_it_count(kafka: Path, tmp_path: Path) -> None:
    directory = metadata_directory(
        tmp_path / "other",
        {30: metadata_log([TopicRecord(name="late", topic_id=UUID(int=9))], 40)},
        {20: [TopicRecord(name="old", topic_id=T)], 40: topic("t", T), 60: topic("cut", U)},
    )
    torn = directory / f"{60:020}-0000000001.checkpoint"
    torn.write_bytes(torn.read_bytes()[:-3])
    (directory / f"{70:020}-0000000001.checkpoint.part").write_bytes(b"")
    read = read_metadata(DISK, directory)
    assert sorted(one.name for one in read.state.topics.values()) == ["late", "t"]
    assert (read.end_offset, read.voters, read.torn_bytes) == (41, 1, 0)


def test_a_quorum_of_several_is_pointed_out(kafka: Path) -> None:
    state = kafka / "__cluster_metadata-0" / "quorum-state"
    state.write_text('{"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}]}')
    assert any("3 controllers" in note for note in importing.survey(DISK, [kafka]).notes)
    log = kafka / "__cluster_metadata-0" / f"{0:020}.log"
    state.write_text('{"data_version":1}')
    assert any("several controllers" in note for note in importing.survey(DISK, [kafka]).notes)
    for count in (2, 1):
        log.write_bytes(log.read_bytes() + voters(count, len(RECORDS) + 2 - count))
        assert read_metadata(DISK, log.parent).voters == count
    assert importing.survey(DISK, [kafka]).notes == []


def voters(count: int, offset: int) -> bytes:
    """The control batch of a quorum that can change."""
    record = VotersRecord(voters=[Voter(voter_id=number) for number in range(count)])
    key = struct.pack(">hh", 0, ControlType.KRAFT_VOTERS)
    data = bytearray(build_batch([Record(0, NOW, key, encode(record, 0), ())]))
    header = BatchHeader.parse(data)._replace(attributes=Attributes.CONTROL, base_offset=offset)
    write_header(data, header)
    return bytes(data)


@pytest.mark.parametrize(
    ("path", "position", "reason"),
    [
        (f"__cluster_metadata-0/{0:020}.log", 100, "is damaged at byte 91"),
        ("meta.properties", 60, "damaged meta.properties|belongs to|is no entry"),
        ("recovery-point-offset-checkpoint", 0, "recovery-point-offset-checkpoint is damaged"),
        ("t-0/leader-epoch-checkpoint", 0, "leader-epoch-checkpoint is damaged"),
        ("t-0/partition.metadata", 0, "partition.metadata"),
    ],
)
def test_damage_is_one_clear_line_and_nothing_is_made(
    kafka: Path, tmp_path: Path, path: str, position: int, reason: str
) -> None:
    data = bytearray((kafka / path).read_bytes())
    data[position] ^= 0x20
    (kafka / path).write_bytes(data)
    before = fingerprint(tmp_path)
    with pytest.raises(MigrationError, match=reason) as caught:
        carry_out(kafka, to=tmp_path / "felice")
    assert "\n" not in str(caught.value)
    assert fingerprint(tmp_path) == before


def test_checkpoints_that_were_never_written_are_empty(kafka: Path, tmp_path: Path) -> None:
    """Kafka creates them so. A crash soon afterwards leaves them."""
    (kafka / ".kafka_cleanshutdown").unlink()
    for path in (*kafka.glob("*checkpoint"), *kafka.glob("t-*/leader-epoch-checkpoint")):
        path.write_bytes(b"")
    _, done = carry_out(kafka, to=tmp_path / "felice")
    assert done.linked_bytes == 0, "nothing says that a segment is on disk"
    assert logs_of(tmp_path / "felice")["t", 0] == (0, 5)


@contextmanager
def locked_by_another(path: Path, lock: Callable[[int, int], None]) -> Iterator[None]:
    """A process of its own holds the lock: locks of fcntl belong to a process."""
    ready, end = multiprocessing.Pipe(), multiprocessing.Pipe()

    def hold() -> None:
        with path.open("w") as file:
            lock(file.fileno(), fcntl.LOCK_EX)
            ready[1].send(None)
            end[0].recv()

    process = multiprocessing.get_context("fork").Process(target=hold)
    process.start()
    ready[0].recv()
    try:
        yield
    finally:
        end[1].send(None)
        process.join()


@pytest.mark.parametrize("lock", [fcntl.lockf, fcntl.flock], ids=["Kafka", "Felice"])
def test_a_directory_in_use_is_refused(kafka: Path, tmp_path: Path, lock: Callable[[int, int], None]) -> None:
    with (
        locked_by_another(kafka / ".lock", lock),
        pytest.raises(MigrationError, match="is in use by a running Kafka; stop it first"),
    ):
        carry_out(kafka, to=tmp_path / "felice")
    assert not (tmp_path / "felice").exists()


def test_a_kafka_that_starts_meanwhile_is_noticed(kafka: Path, tmp_path: Path) -> None:
    with pytest.raises(MigrationError, match="was used by Kafka meanwhile"):
        carry_out(kafka, to=tmp_path / "felice", on_bytes=lambda count: (kafka / ".lock").touch())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kafka"]


@pytest.mark.parametrize("target", ["full", "file", "kafka/inside", "kafka", "."])
def test_a_target_that_is_not_free_is_refused(kafka: Path, tmp_path: Path, target: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "file").touch()
    before = fingerprint(tmp_path)
    with pytest.raises(MigrationError, match="is not empty|overlaps"):
        carry_out(kafka, to=tmp_path / target)
    assert fingerprint(tmp_path) == before


def test_an_empty_directory_may_be_filled(kafka: Path, tmp_path: Path) -> None:
    (tmp_path / "felice").mkdir()
    carry_out(kafka, to=tmp_path / "felice")
    assert logs_of(tmp_path / "felice")


def test_an_error_leaves_nothing(kafka: Path, tmp_path: Path) -> None:
    def fail(count: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(MigrationError, match="the copy failed: No space left on device"):
        carry_out(kafka, to=tmp_path / "felice", on_bytes=fail)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kafka"]


KILLED_AT = ["first bytes", "last bytes", "before the store", "after the store", "before the rename"]


@pytest.mark.parametrize("when", KILLED_AT)
def test_a_kill_leaves_nothing_that_starts(
    kafka: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    target, before = tmp_path / "felice", fingerprint(kafka)

    def kill(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def run() -> None:
        count = 0

        def on_bytes(_: int) -> None:
            nonlocal count
            count += 1
            if (when, count) in (("first bytes", 1), ("last bytes", 4)):
                kill()

        if when == "before the store":
            monkeypatch.setattr(importing.felice_store, "write", kill)
        if when == "before the rename":
            monkeypatch.setattr(SystemDisk, "rename", _unless_metadata(SystemDisk.rename, kill))
        if when == "after the store":
            written = importing.felice_store.write
            monkeypatch.setattr(importing.felice_store, "write", lambda *args: (written(*args), kill()))
        carry_out(kafka, to=target, on_bytes=on_bytes)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not target.exists()
    assert fingerprint(kafka) == before
    [rest] = tmp_path.glob(".*")
    assert rest.name == ".felice.felice-new"
    if not (rest / "metadata").exists():
        with pytest.raises(StartupError, match="whose metadata is gone"):
            check_may_begin(DISK, [rest], None)
    carry_out(kafka, to=target)
    assert logs_of(target)["t", 0] == (0, 5)
    assert list(tmp_path.glob(".*")) == []


def _unless_metadata(rename: Callable[..., None], kill: Callable[[], None]) -> Callable[..., None]:
    def checked(disk: SystemDisk, source: Path, target: Path) -> None:
        if target.name != "metadata":
            kill()
        rename(disk, source, target)

    return checked


def test_two_imports_at_once_do_not_meet(kafka: Path, tmp_path: Path) -> None:
    with (
        new_directories.being_built(DISK, [tmp_path / "felice"]),
        pytest.raises(MigrationError, match="another import or export is under way"),
    ):
        carry_out(kafka, to=tmp_path / "felice")


def test_directories_of_two_nodes_are_refused(kafka: Path, tmp_path: Path) -> None:
    other = log_directory(tmp_path / "other", {}, node_id=2)
    with pytest.raises(MigrationError, match="import one node"):
        importing.survey(DISK, [kafka, other])


def transaction(name: str, status: int) -> Record:
    value = TransactionLogValue(
        producer_id=7,
        transaction_timeout_ms=60_000,
        transaction_status=status,
        transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0])],
        transaction_start_timestamp_ms=NOW,
    )
    return Record(0, NOW, encode_data(TransactionLogKey(transactional_id=name)), encode_data(value, 1), ())


def test_open_transactions_are_named(kafka: Path) -> None:
    name, topic_id = "__transaction_state", UUID(int=5)
    changes = [("a", 1), ("b", 1), ("b", 4), ("c", 4), ("c", 1)]
    data = build_batch([transaction(*change) for change in changes])
    log_directory(kafka, {(name, 0): (topic_id, {0: data})})
    log = kafka / "__cluster_metadata-0" / f"{0:020}.log"
    log.write_bytes(metadata_log([*RECORDS, *topic(name, topic_id)]))
    found = importing.survey(DISK, [kafka]).transactions
    assert [(one.transactional_id, one.producer_id, one.partitions) for one in found] == [
        ("a", 7, ("t-0",)),
        ("c", 7, ("t-0",)),
    ]


def test_an_old_message_format_is_refused_by_name(kafka: Path, tmp_path: Path) -> None:
    old = struct.pack(">qiIbb", 0, 30, 0, 1, 0) + bytes(28)
    (kafka / "t-0" / f"{2:020}.log").write_bytes(old)
    left = importing.survey(DISK, [kafka]).plan.left
    assert [(one.kind, one.name) for one in left] == [("topic", "t")]


def test_metadata_in_a_directory_of_its_own(kafka: Path, tmp_path: Path) -> None:
    """`metadata.log.dir` names one that is no entry of log.dirs."""
    apart = log_directory(tmp_path / "apart", {}, directory_id=UUID(int=50))
    (kafka / "__cluster_metadata-0").rename(apart / "__cluster_metadata-0")
    with pytest.raises(
        MigrationError, match=r"If it is elsewhere \(metadata.log.dir\), name that directory too"
    ):
        importing.survey(DISK, [kafka])
    assert importing.survey(DISK, [kafka, apart]).plan.counts["topics"] == 2


def test_a_store_that_cannot_be_written_is_one_clear_line(
    kafka: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(importing.felice_store, "write", fail)
    with pytest.raises(MigrationError, match="the copy failed: No space left on device"):
        carry_out(kafka, to=tmp_path / "felice")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kafka"]
