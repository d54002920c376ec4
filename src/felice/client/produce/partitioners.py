"""The partitioners of librdkafka and of the Java client, by their configured names.

Keeps true:  A key goes to the same partition as with the client that the partitioner comes from: `murmur2` and
             `murmur2_random` from Java, `consistent` and `consistent_random` (CRC-32) from librdkafka, `fnv1a` from
             sarama.
A partitioner returns None if any partition will do: the accumulator then stays with one partition for a while and
fills its batch (KIP-480).
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import TypeAlias

from felice.records.kernels import murmur2

Partitioner: TypeAlias = Callable[[bytes | None, int], int | None]

_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193

# Keys repeat (carriers, users), and hashing in plain Python takes microseconds.
_hash_murmur2 = lru_cache(maxsize=65_536)(murmur2)


@lru_cache(maxsize=65_536)
def _hash_fnv1a(key: bytes) -> int:
    value = _FNV_OFFSET
    for byte in key:
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    # sarama reads the hash as a signed number and drops the sign.
    signed = value - (1 << 32) if value & 0x80000000 else value
    return abs(signed)


def murmur2_random(key: bytes | None, partitions: int) -> int | None:
    """murmur2 of the key; None without a key."""
    return None if key is None else _hash_murmur2(key) % partitions


def murmur2_all(key: bytes | None, partitions: int) -> int | None:
    """murmur2 of the key; a missing key hashes as an empty one."""
    return _hash_murmur2(key or b"") % partitions


def consistent(key: bytes | None, partitions: int) -> int | None:
    """CRC-32 of the key; a missing key hashes as an empty one."""
    return zlib.crc32(key or b"") % partitions


def consistent_random(key: bytes | None, partitions: int) -> int | None:
    """CRC-32 of the key; None without a key."""
    # In librdkafka, an empty key counts as no key for this partitioner.
    return zlib.crc32(key) % partitions if key else None


def fnv1a(key: bytes | None, partitions: int) -> int | None:
    """FNV-1a of the key; a missing key hashes as an empty one."""
    return _hash_fnv1a(key or b"") % partitions


def fnv1a_random(key: bytes | None, partitions: int) -> int | None:
    """FNV-1a of the key; None without a key."""
    return None if key is None else _hash_fnv1a(key) % partitions


def sticky(key: bytes | None, partitions: int) -> int | None:
    """None for every key: the accumulator stays with one partition for a while."""
    return None


class Spread:
    """A partitioner that ignores keys. It chooses among partitions with a leader, as in librdkafka and Java.

    The second argument is their number, and the result a position among them.
    """

    def __init__(self, choose: Callable[[int], int]) -> None:
        self._choose = choose

    def __call__(self, key: bytes | None, partitions: int) -> int:
        """Return a position below `partitions`."""
        return self._choose(partitions)


def uniform(random: Random) -> Partitioner:
    """A partitioner that chooses a random partition for each record."""
    return Spread(random.randrange)


def round_robin(random: Random) -> Partitioner:
    """A partitioner that takes the partitions in turn, with one counter per producer."""
    turn = itertools.count()
    return Spread(lambda partitions: next(turn) % partitions)


STICK_WITHOUT_KEY: frozenset[Partitioner] = frozenset(
    {murmur2_random, consistent_random, fnv1a_random, sticky}
)
"""Partitioners that return None for each record without a key, and keep no state."""

PARTITIONERS: dict[str, Callable[[Random], Partitioner]] = {
    "murmur2_random": lambda random: murmur2_random,
    "murmur2": lambda random: murmur2_all,
    "consistent_random": lambda random: consistent_random,
    "consistent": lambda random: consistent,
    "fnv1a_random": lambda random: fnv1a_random,
    "fnv1a": lambda random: fnv1a,
    "random": uniform,
    "sticky": lambda random: sticky,
    "round_robin": round_robin,
}


def make_partitioner(choice: str | Partitioner, random: Random | None = None) -> Partitioner:
    """`choice` is a name in `PARTITIONERS`, or a function of the key and the number of partitions."""
    return PARTITIONERS[choice](random or Random()) if isinstance(choice, str) else choice


def partition_of(hashed: Partitioner, key: bytes, partition_count: int) -> int:
    """Return the partition of a key. Raises `ValueError` if the topic has no partitions."""
    if not isinstance(key, bytes):
        raise TypeError(f"expected the key as bytes, got {type(key).__name__}")
    if partition_count <= 0:
        raise ValueError("partition_count must be above 0")
    partition = hashed(key, partition_count)
    assert partition is not None
    return partition
