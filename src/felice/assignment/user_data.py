"""Encodes the user data of the sticky assignors, with the same bytes as Java.

A member with the eager `sticky` assignor owns nothing when it joins, so the user data has its last assignment: an array
of {topic, [partition]} and, since version 1, the generation. `cooperative-sticky` sends only the generation, for
members whose subscription is older than version 2. The data has no version number: version 1 is version 0 with four
more bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import groupby

from felice.assignment.values import NO_GENERATION
from felice.protocol.topic_partition import TopicPartition

_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")


def encode_previous_assignment(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """Encodes the user data of `sticky`."""
    by_topic = groupby(sorted(partitions), key=lambda partition: partition.topic)
    topics = [(topic, [held.partition for held in group]) for topic, group in by_topic]
    parts = [_INT32.pack(len(topics))]
    for topic, indexes in topics:
        name = topic.encode()
        parts += [_INT16.pack(len(name)), name, struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)]
    parts.append(_INT32.pack(generation))
    return b"".join(parts)


def decode_previous_assignment(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    """Returns partitions and generation. As in Java, data that cannot be read counts as no partitions."""
    try:
        return _decode_previous_assignment(data)
    except (struct.error, ValueError):
        return (), NO_GENERATION


def _decode_previous_assignment(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    partitions: list[TopicPartition] = []
    (topic_count,) = _INT32.unpack_from(data, 0)
    position = 4
    for _ in range(topic_count):
        (name_size,) = _INT16.unpack_from(data, position)
        name_end = position + 2 + name_size
        (partition_count,) = _INT32.unpack_from(data, name_end)
        if not 0 <= name_size <= len(data) or not 0 <= partition_count <= len(data):
            raise ValueError("a size in the user data points beyond its end")
        topic = data[position + 2 : name_end].decode()
        indexes = struct.unpack_from(f">{partition_count}i", data, name_end + 4)
        partitions += [TopicPartition(topic, index) for index in indexes]
        position = name_end + 4 + 4 * partition_count
    if len(data) < position + 4:
        return tuple(partitions), NO_GENERATION
    return tuple(partitions), _INT32.unpack_from(data, position)[0]


def encode_generation(generation: int) -> bytes:
    """Encodes the user data of `cooperative-sticky`."""
    return _INT32.pack(generation)


def decode_generation(data: bytes | None) -> int:
    """Returns the generation, or `NO_GENERATION` if the data cannot be read."""
    if data is None or len(data) < _INT32.size:
        return NO_GENERATION
    return int(_INT32.unpack_from(data)[0])
