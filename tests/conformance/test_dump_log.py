"""Kafka's DumpLogSegments reads a log directory and finds nothing wrong."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.group_calls import commit, find_coordinator, stable_member
from conformance.targets import Target
from conformance.test_behaviours_admin import delete_records
from conformance.topics import batch_of, create_topic, produce
from felice.records.compression import Codec
from peers import java
from peers.clients import CODECS, Clients
from peers.record import PeerRecord

DUMP = "org.apache.kafka.tools.DumpLogSegments"
COMPLAINTS = re.compile(
    r"isvalid: false|mismatch|out of order|corrupt|exception|error|non-consecutive|failed|not found", re.I
)
SEGMENT_BYTES = 1_048_576


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory, clients: Clients) -> Iterator[Path]:
    """The directory of a broker that received every kind of batch and was stopped cleanly."""
    java.require_java()
    with Target({"log.index.interval.bytes": "4096"}) as broker:
        many_segments(broker)
        every_codec(broker, clients)
        with broker.wire() as wire:
            topic = create_topic(broker, "stamped", message_timestamp_type="LogAppendTime")
            produce(wire, topic, batch_of(b"a", b"b", codec=Codec.LZ4))
            topic = create_topic(broker, "recompressed", compression_type="zstd")
            produce(wire, topic, batch_of(*[b"x" * 100] * 50, codec=Codec.GZIP))
            find_coordinator(wire, "group")
            stable_member(wire, "group")
            find_coordinator(wire, "simple")
            assert commit(wire, "recompressed", 7, group_id="simple", metadata="note") == 0
        broker.stop()
        yield broker.log_dir


def many_segments(broker: Target) -> None:
    topic = create_topic(broker, "segments", segment_bytes=SEGMENT_BYTES, index_interval_bytes=4096)
    with broker.wire() as wire:
        for number in range(500):
            values = [b"%d" % number * 100 for _ in range(20)]
            sequence = {"producer_id": 4242, "producer_epoch": 0, "base_sequence": number * 20}
            assert produce(wire, topic, batch_of(*values, **sequence)).error_code == 0
        assert delete_records(wire, topic, 30).error_code == 0


def every_codec(broker: Target, clients: Clients) -> None:
    topic = create_topic(broker, "codecs")
    records = [PeerRecord(b"key", b"value" * 100, (("h", b"1"),)) for _ in range(100)]
    for codec in CODECS:
        for name in ("java", "confluent-kafka"):
            clients.get(name).produce(broker.bootstrap, topic, records, codec)


def files_of(log_dir: Path, suffix: str, prefix: str = "") -> list[Path]:
    return sorted(path for path in log_dir.glob(f"{prefix}*/*{suffix}") if "metadata" not in path.parent.name)


def dump(files: list[Path], *options: str) -> str:
    assert files
    return java.run_tool(DUMP, *options, "--files", ",".join(map(str, files))).stdout


def complaints_of(output: str) -> list[str]:
    """Output lines that report a problem, except for lines with the names of the files."""
    return [row for row in output.splitlines() if not row.startswith("Dumping") and COMPLAINTS.search(row)]


def test_every_record_of_every_segment_is_read(log_dir: Path) -> None:
    segments = files_of(log_dir, ".log")
    assert len([path for path in segments if path.parent.name == "segments-0"]) >= 3
    output = dump(segments, "--deep-iteration")
    assert complaints_of(output) == []
    assert output.count("isvalid: true") > 500
    for codec in CODECS:
        assert f"compresscodec: {codec}" in output


def test_every_index_agrees_with_its_segment(log_dir: Path) -> None:
    indexes = [*files_of(log_dir, ".index"), *files_of(log_dir, ".timeindex")]
    assert complaints_of(dump(indexes, "--verify-index-only")) == []
    sane = dump(files_of(log_dir, ".index"), "--index-sanity-check")
    assert complaints_of(sane) == []
    sound = sane.count("passed sanity check.") + sane.count("is empty.")
    assert sound == len(files_of(log_dir, ".index"))


def test_offset_indexes_are_sparse_and_not_empty(log_dir: Path) -> None:
    output = dump(files_of(log_dir, ".index", "segments-0"))
    assert complaints_of(output) == []
    entries = re.findall(r"offset: (\d+) position: (\d+)", output)
    assert len(entries) > 100


def test_producer_snapshots_are_read(log_dir: Path) -> None:
    snapshots = files_of(log_dir, ".snapshot", "segments-0")
    output = dump(snapshots)
    assert complaints_of(output) == []
    assert re.search(r"producerId: 4242 producerEpoch: 0 .*lastSequence: 9999", output.replace("\n", " "))


def test_committed_offsets_and_groups_are_decoded(log_dir: Path) -> None:
    output = dump(files_of(log_dir, ".log", "__consumer_offsets"), "--offsets-decoder")
    assert complaints_of(output) == []
    assert re.search(r'"type":"1".*"group":"simple","topic":"recompressed","partition":0', output)
    assert re.search(r'"type":"2".*"group":"group"', output)
    assert re.search(r'"offset":7.*"metadata":"note"', output)


def test_the_tool_reports_a_damaged_segment(log_dir: Path, tmp_path: Path) -> None:
    """The tool does not accept a segment with one changed byte, so the tests above can fail."""
    damaged = tmp_path / "damaged-0"
    shutil.copytree(log_dir / "codecs-0", damaged)
    (segment,) = damaged.glob("*.log")
    content = bytearray(segment.read_bytes())
    content[100] ^= 0xFF
    segment.write_bytes(content)
    assert complaints_of(dump([segment], "--deep-iteration")) or "isvalid: false" in dump([segment])
