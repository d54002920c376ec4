"""Reads a task's part of a batch in a Spark worker: fetches whole record batches, and yields Arrow.

Keeps true: each record between a range's offsets is yielded once, in order within its partition. If records are missing
            from the log, the task fails, unless `failOnDataLoss` is false.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from felice.client.blocking import EARLIEST, LATEST, BlockingClient, OffsetOutOfRange
from felice.client.error import KafkaError, KafkaException
from felice.pipelines.spark.cluster import report_losses
from felice.pipelines.spark.connections import client_of
from felice.pipelines.spark.offsets import Partition
from felice.pipelines.spark.options import SourceOptions
from felice.pipelines.spark.planning import Task
from felice.records.arrow import batches_to_arrow

Spans = dict[Partition, tuple[int, int]]


def read_task(task: Task, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yields the records of the task's ranges as Arrow batches with the source's columns."""
    client = client_of(options.client)
    for spans in _rounds(task):
        yield from _read(client, spans, options)


def _rounds(task: Task) -> list[Spans]:
    """Returns the task's ranges in groups with at most one range of each partition, as one fetch needs it."""
    rounds: list[Spans] = []
    for piece in task:
        key = (piece.topic, piece.partition)
        free = next((spans for spans in rounds if key not in spans), None)
        if free is None:
            rounds.append(free := {})
        free[key] = (piece.start, piece.end)
    return rounds


def _read(client: BlockingClient, spans: Spans, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    left, wanted = dict(spans), dict(spans)
    while left:
        try:
            for piece in client.fetch(left):
                key = (piece.topic, piece.partition)
                yield from batches_to_arrow(
                    [piece.data],
                    *wanted[key],
                    topic=piece.topic,
                    partition=piece.partition,
                    with_headers=options.include_headers,
                )
                left[key] = (piece.next_offset, wanted[key][1])
            return
        except OffsetOutOfRange as error:
            key = (error.topic, error.partition)
            held = _held(client, key, left.pop(key), options)
            left = {other: span for other, span in left.items() if span[0] < span[1]}
            if held[0] < held[1]:
                # The first batch may begin before the log start; its records before that are gone, too.
                left[key] = wanted[key] = held
        except KafkaException as error:
            if error.code != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            existing = _of_existing_topics(client, left, options)
            if existing == left:
                raise
            left = existing


def _of_existing_topics(client: BlockingClient, left: Spans, options: SourceOptions) -> Spans:
    """Reports ranges of deleted partitions, and returns the other ranges."""
    topics = client.metadata({topic for topic, _ in left}).topics
    gone = [(topic, partition) for topic, partition in left if partition not in topics[topic].partitions]
    report_losses(
        (f"partition {key[1]} of topic {key[0]} is gone before all of it was read" for key in sorted(gone)),
        options.fail_on_data_loss,
    )
    return {key: span for key, span in left.items() if key not in gone and span[0] < span[1]}


def _held(
    client: BlockingClient, key: Partition, span: tuple[int, int], options: SourceOptions
) -> tuple[int, int]:
    """Reports the part of `span` that the log no longer holds, and returns the rest."""
    first = client.list_offsets({key: EARLIEST})[key].offset
    last = client.list_offsets({key: LATEST})[key].offset
    found = f"partition {key[1]} of topic {key[0]} holds offsets {first} to {last}"
    report_losses([f"{found}, not all of {span[0]} to {span[1]}"], options.fail_on_data_loss)
    return max(span[0], first), min(span[1], last)
