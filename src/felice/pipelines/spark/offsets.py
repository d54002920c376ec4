"""Offsets of many partitions, as Spark keeps them in its checkpoints.

Keeps true: the JSON is that of Spark's own Kafka source, `{"topic":{"0":5}}`, so tools for the checkpoints of one
            source work for the other.
Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

Partition = tuple[str, int]
Offsets = dict[Partition, int]
Checkpoint = dict[str, dict[str, int]]
"""Topic to partition, as text, to offset: the document in Spark's checkpoints."""

LATEST = -1
EARLIEST = -2


class OffsetsError(ValueError):
    """An offset document that is not `{"topic":{"partition":offset}}`."""


def to_checkpoint(offsets: Mapping[Partition, int]) -> Checkpoint:
    """The document of these offsets. It is sorted, so that one set of offsets has one text."""
    document: Checkpoint = {}
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document


def from_checkpoint(document: object) -> Offsets:
    """The inverse of `to_checkpoint`. Raises `OffsetsError` that names the wrong entry."""
    if not isinstance(document, Mapping):
        raise OffsetsError(f'expected {{"topic":{{"0":5}}}}, got {document!r}')
    offsets: Offsets = {}
    for topic, partitions in document.items():
        if not isinstance(partitions, Mapping):
            raise OffsetsError(
                f"topic {topic!r}: expected an object of partition to offset, got {partitions!r}"
            )
        for partition, offset in partitions.items():
            offsets[topic, _partition_number(topic, partition)] = _whole_number(topic, partition, offset)
    return offsets


def parse_offsets(text: str) -> Offsets:
    """Parses the JSON text of a checkpoint or an option. Raises `OffsetsError` that names the wrong entry."""
    return from_checkpoint(_load(text))


def parse_partitions(text: str) -> tuple[Partition, ...]:
    """Parses `{"topic":[0,1]}`, the form of the option `assign`."""
    document = _load(text)
    if not isinstance(document, Mapping) or not document:
        raise OffsetsError(f'expected {{"topic":[0,1]}}, got {text}')
    found: list[Partition] = []
    for topic, partitions in document.items():
        if not isinstance(partitions, list) or not partitions:
            raise OffsetsError(f"topic {topic!r}: expected a list of partitions, got {partitions!r}")
        found += [(topic, _partition_number(topic, partition)) for partition in partitions]
    return tuple(sorted(set(found)))


def _load(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise OffsetsError(f"not JSON: {error}") from error


def _partition_number(topic: str, partition: object) -> int:
    digits = str(partition)
    if not (digits.isascii() and digits.isdigit()) or isinstance(partition, bool):
        raise OffsetsError(f"topic {topic!r}: {partition!r} is not a partition number")
    return int(digits)


def _whole_number(topic: str, partition: object, offset: object) -> int:
    if not isinstance(offset, int) or isinstance(offset, bool):
        raise OffsetsError(f"topic {topic!r} partition {partition}: {offset!r} is not a whole number")
    return offset
