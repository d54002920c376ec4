"""Every client writes with every codec, and every client reads the records of all others."""

import functools
from collections.abc import Callable

import pytest

from conformance.batches import batch_headers_of
from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from peers.clients import CODECS, Clients
from peers.record import PeerRecord

CLIENTS = ("felice", "confluent-kafka", "kafka-python", "aiokafka", "kcat", "java", "franz-go", "kafkajs")
# kcat ends its line format at a separator, so it cannot tell an empty value from none.
WITHOUT_EMPTY_VALUES = ("kcat",)
# These refuse a header without a value in their own code.
WITHOUT_NULL_HEADERS = ("kafka-python", "kafkajs")
FIRST_TIMESTAMP_MS = 1_700_000_000_000

Written = tuple[str, list[PeerRecord]]
Write = Callable[[str], Written]


def records_of(writer: str, codec: str) -> list[PeerRecord]:
    """Null and repeated keys, a tombstone, headers in order, twice and null, text beyond ASCII, a long value."""
    tag = f"{writer}/{codec}"
    rows: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (b"key", tag.encode(), ()),
        (None, b"no key", (("codec", codec.encode()),)),
        (b"tombstone", None, ()),
        ("schlüssel".encode(), "değer ☃".encode(), (("twice", b"1"), ("twice", b"2"), ("after", b"3"))),
        (b"long", b"0123456789" * 200, ()),
    ]
    if writer not in WITHOUT_NULL_HEADERS:
        rows.append((b"null header", b"value", (("null", None),)))
    if writer not in WITHOUT_EMPTY_VALUES:
        rows.append((b"empty", b"", (("empty", b""),)))
    # kcat stamps its records itself.
    stamps = [None if writer == "kcat" else FIRST_TIMESTAMP_MS + at for at in range(len(rows))]
    return [
        PeerRecord(key, value, headers, stamp, partition=at % 2)
        for at, ((key, value, headers), stamp) in enumerate(zip(rows, stamps, strict=True))
    ]


@pytest.fixture(scope="module")
def written(broker: Target, clients: Clients) -> Write:
    @functools.cache
    def write(writer: str) -> Written:
        client = clients.get(writer)
        topic = unique_name(f"matrix-{writer}")
        create_topic(broker, topic, partitions=2)
        everything = []
        for codec in CODECS:
            records = records_of(writer, codec)
            client.produce(broker.bootstrap, topic, records, codec)
            everything += records
        return topic, everything

    return write


def comparable(records: list[PeerRecord], reader: str) -> dict[int, list[tuple[object, ...]]]:
    """What must be equal, by partition and in order; kcat prints empty and absent headers alike."""
    seen: dict[int, list[tuple[object, ...]]] = {}
    for record in records:
        headers = tuple(
            (name, value or None if reader == "kcat" else value) for name, value in record.headers
        )
        seen.setdefault(record.partition, []).append((record.key, record.value, headers))
    return seen


@pytest.mark.parametrize("writer", CLIENTS)
@pytest.mark.parametrize("reader", CLIENTS)
def test_every_client_reads_what_every_client_wrote(
    broker: Target, clients: Clients, written: Write, writer: str, reader: str
) -> None:
    client = clients.get(reader)
    topic, expected = written(writer)
    seen = sorted(client.consume(broker.bootstrap, topic, len(expected)), key=lambda row: row.offset)
    assert comparable(seen, reader) == comparable(expected, reader)
    assert_offsets_are_dense(seen)
    if writer != "kcat":
        ordered = [record.timestamp_ms for part in (0, 1) for record in expected if record.partition == part]
        assert [row.timestamp_ms for part in (0, 1) for row in seen if row.partition == part] == ordered


def assert_offsets_are_dense(seen: list[PeerRecord]) -> None:
    for partition in (0, 1):
        offsets = [row.offset for row in seen if row.partition == partition]
        assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize("writer", CLIENTS)
def test_every_codec_is_stored_as_the_client_sent_it(broker: Target, written: Write, writer: str) -> None:
    topic, _ = written(writer)
    with broker.wire() as wire:
        codecs = {header.codec for part in (0, 1) for header in batch_headers_of(wire, topic, part)}
    assert codecs == {0, 1, 2, 3, 4}
