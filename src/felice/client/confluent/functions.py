"""confluent_kafka's functions: the partition of a key, and the version of the API that this package implements."""

from __future__ import annotations

from felice.client.produce import partitioners

# Programs compare these versions to find out which calls exist.
__version__ = "2.16.1"
_LIBRDKAFKA_VERSION = ("2.16.0", 0x021000FF)


def version() -> str:
    """The version of confluent_kafka whose API this package implements. Felice's version is in the package metadata."""
    return __version__


def libversion() -> tuple[str, int]:
    """The version of librdkafka that belongs to `version()`. This client does not contain librdkafka."""
    return _LIBRDKAFKA_VERSION


def murmur2(key: bytes, partition_count: int) -> int:
    """Return the partition of a key by Java's hash. Raises `ValueError` unless `partition_count` is above 0."""
    return partitioners.partition_of(partitioners.murmur2_all, key, partition_count)


def consistent(key: bytes, partition_count: int) -> int:
    """Return the partition of a key by CRC-32, librdkafka's default. Raises like `murmur2`."""
    return partitioners.partition_of(partitioners.consistent, key, partition_count)


def fnv1a(key: bytes, partition_count: int) -> int:
    """Return the partition of a key by FNV-1a, sarama's default. Raises like `murmur2`."""
    return partitioners.partition_of(partitioners.fnv1a, key, partition_count)
