"""Record batches for tests: built by hand to break a rule, or read from a fetch response."""

from collections.abc import Iterator, Sequence

from conformance.wire import Wire
from felice.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from felice.records.batch import BatchHeader, iter_batches

MAX_BYTES = 50 << 20
FETCH_BY_NAME = 12


def fetch_request(
    topic: str,
    offset: int = 0,
    partition: int = 0,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = MAX_BYTES,
    partition_max_bytes: int = MAX_BYTES,
    isolation_level: int = 0,
) -> FetchRequest:
    wanted = FetchPartition(
        partition=partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )


def fetch_records(wire: Wire, topic: str, offset: int, partition: int = 0, max_wait_ms: int = 500) -> bytes:
    answer = wire.ask(fetch_request(topic, offset, partition, max_wait_ms), FETCH_BY_NAME)
    row = answer.responses[0].partitions[0]
    assert row.error_code == 0, row
    return bytes(row.records)


def batch_headers_of(
    wire: Wire, topic: str, partition: int = 0, max_wait_ms: int = 0
) -> Sequence[BatchHeader]:
    """Every batch of a partition, read from its beginning to its end."""
    return list(_batch_headers(wire, topic, partition, max_wait_ms))


def _batch_headers(wire: Wire, topic: str, partition: int, max_wait_ms: int) -> Iterator[BatchHeader]:
    offset = 0
    while True:
        records = fetch_records(wire, topic, offset, partition, max_wait_ms)
        if not records:
            return
        for header in iter_batches(records):
            yield header
            offset = header.next_offset
