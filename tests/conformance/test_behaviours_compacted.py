"""Rule 49: a compacted log has gaps, and reading it never stalls.

Such a log is planted: batches that start late, end later than their last record, or hold none at all.
"""

import struct
from collections.abc import Iterator

import pytest

from conformance.batches import fetch_records
from conformance.targets import Target
from conformance.topics import create_topic, list_offset, produce, record
from felice.records.batch import BatchHeader, iter_batches, seal
from felice.records.builder import build_batch
from peers.clients import Clients

COUNT_AT, DELTA_AT = 57, 23
# base offset, records kept, last offset delta: as compaction leaves them
BATCHES = [(3, 2, 4), (10, 0, 2), (20, 1, 0), (21, 1, 8), (40, 3, 2)]
END = 43
SEGMENT = "00000000000000000000"


def compacted_batch(base_offset: int, count: int, last_offset_delta: int) -> bytes:
    values = [record(b"%d" % (base_offset + at), b"k%d" % at) for at in range(max(count, 1))]
    batch = bytearray(build_batch(values, base_offset=base_offset, leader_epoch=0))
    if not count:
        del batch[61:]
        struct.pack_into(">i", batch, 8, 49)
        struct.pack_into(">i", batch, COUNT_AT, 0)
    struct.pack_into(">i", batch, DELTA_AT, last_offset_delta)
    seal(batch, 0, len(batch))
    return bytes(batch)


@pytest.fixture(scope="module")
def gaps() -> Iterator[Target]:
    with Target() as target:
        create_topic(target, "gaps", cleanup_policy="compact")
        with target.wire() as wire:
            assert produce(wire, "gaps", build_batch([record(b"v", b"k")])).error_code == 0
        target.stop()
        directory = target.log_dir / "gaps-0"
        for path in (
            *directory.glob("*.index"),
            *directory.glob("*.timeindex"),
            *directory.glob("*.snapshot"),
        ):
            path.unlink()
        (directory / f"{SEGMENT}.log").write_bytes(b"".join(compacted_batch(*row) for row in BATCHES))
        target.start()
        yield target


@pytest.mark.parametrize("offset", range(3, END))
def test_every_offset_leads_to_the_next_batch(gaps: Target, offset: int) -> None:
    """49: a fetch in a gap returns the next batch, even if that is empty."""
    with gaps.wire() as wire:
        header = BatchHeader.parse(fetch_records(wire, "gaps", offset))
    expected = next(row for row in BATCHES if row[0] + row[2] >= offset)
    assert (header.base_offset, header.record_count, header.last_offset_delta) == expected


def test_following_the_batches_reaches_the_end(gaps: Target) -> None:
    """49: the next position follows from the last offset of each batch, not of its last record."""
    with gaps.wire() as wire:
        assert list_offset(wire, "gaps", -1).offset == END
        offset, seen = 0, []
        while offset < END:
            for header in iter_batches(fetch_records(wire, "gaps", offset)):
                seen.append(header.base_offset)
                offset = header.next_offset
    assert seen == [row[0] for row in BATCHES]


@pytest.mark.parametrize("name", ["felice", "confluent-kafka", "aiokafka", "java", "franz-go", "kafkajs"])
def test_every_client_reads_over_the_gaps(gaps: Target, clients: Clients, name: str) -> None:
    """49: reading batch after batch never stops before the end."""
    records = clients.get(name).consume(gaps.bootstrap, "gaps", 7)
    assert [row.offset for row in records] == [3, 4, 20, 21, 40, 41, 42]


def test_the_next_record_goes_behind_the_end(gaps: Target) -> None:
    """49, 50: the end offset is kept if its records were compacted away."""
    with gaps.wire() as wire:
        row = produce(wire, "gaps", build_batch([record(b"v", b"k")]))
    assert (row.error_code, row.base_offset) == (0, END)
