"""Turns tables into record batches by partition, without a Python object per row.

Keeps true:  Rows of one partition keep their order. A row with a partition number goes to that partition. A row with a
             key goes to the partition that the Java client would choose. The other rows are cut into as many runs
             of consecutive rows as there are partitions with a leader.
             A table with a row that cannot be a record is refused before any of its batches is made.
pyarrow is imported on first use.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from felice.client.error import KafkaError, failure
from felice.client.options import ProducerSettings
from felice.protocol.primitives import Buffer
from felice.records.arrow import arrow_to_batches, has_nameless_header, key_hashes
from felice.records.batch import BatchHeader
from felice.records.compression import Codec

if TYPE_CHECKING:
    import pyarrow as pa

_CONTENT = ("key", "value", "timestamp", "headers")


def batches_of_table(
    table: pa.Table | pa.RecordBatch,
    names: Mapping[str, str | None],
    partition_count: int,
    led: Sequence[int],
    settings: ProducerSettings,
) -> Iterator[tuple[int, Buffer, int]]:
    """Yield partition, batch and record count. `names` maps parts of a record (key, value...) to columns.

    `led` has the partitions for rows that may go to any.
    """
    import pyarrow as pa

    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    _check_columns(table, names)
    content = _content(table, names)
    if "value" not in content.schema.names and "key" not in content.schema.names:
        wanted = f"{names['value']!r} nor {names['key']!r}"
        raise failure(KafkaError._INVALID_ARG, f"the table has neither a column {wanted}")
    _check_rows(content)
    targets = _targets(content, _column(table, names["partition"]), partition_count)
    for partition, rows in _by_partition(content, targets, partition_count, led):
        for data in _batches(rows, settings):
            yield partition, data, BatchHeader.parse(data).record_count


def _check_columns(table: pa.Table, names: Mapping[str, str | None]) -> None:
    """Raise unless every column becomes a part of the records: no column may be dropped silently."""
    known = [name for name in names.values() if name is not None]
    unused = [name for name in table.schema.names if name not in known]
    if unused:
        raise failure(
            KafkaError._INVALID_ARG,
            f"columns {', '.join(map(repr, unused))} do not belong to a record; known columns: "
            f"{', '.join(map(repr, known))}; drop the others, or name them in the arguments",
        )
    # A default column may be missing, but not a column that the caller named.
    missing = [name for part, name in names.items() if name not in (None, part, *table.schema.names)]
    if missing:
        raise failure(KafkaError._INVALID_ARG, f"the table has no column {missing[0]!r}")
    repeated = [name for name in known if table.schema.names.count(name) > 1]
    if repeated:
        raise failure(KafkaError._INVALID_ARG, f"the table has several columns {repeated[0]!r}")


def _content(table: pa.Table, names: Mapping[str, str | None]) -> pa.Table:
    import pyarrow as pa

    columns = {part: _column(table, names[part]) for part in _CONTENT}
    return pa.table({part: column for part, column in columns.items() if column is not None})


def _column(table: pa.Table, name: str | None) -> pa.ChunkedArray | None:
    return table.column(name) if name is not None and name in table.schema.names else None


def _batches(rows: pa.Table, settings: ProducerSettings) -> Iterator[Buffer]:
    return arrow_to_batches(
        rows,
        timestamp_ms=time.time_ns() // 1_000_000,
        codec=Codec(settings.compression_type),
        level=settings.level,
        transactional=settings.transactional_id is not None,
        target_bytes=min(settings.batch_size, settings.message_max_bytes),
    )


def _check_rows(content: pa.Table) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if "timestamp" in content.schema.names and content.num_rows:
        earliest = pc.min(pc.cast(content.column("timestamp"), pa.int64())).as_py()
        if earliest is not None and earliest < 0:
            raise failure(KafkaError._INVALID_ARG, f"timestamp {earliest} is before 1970")
    if "headers" in content.schema.names and has_nameless_header(content.column("headers")):
        raise failure(KafkaError._INVALID_ARG, "a header's name is null")


def _targets(content: pa.Table, numbers: pa.ChunkedArray | None, count: int) -> pa.Int64Array:
    """The partition of each row; null for rows that may go to any."""
    import pyarrow as pa
    import pyarrow.compute as pc

    choices: list[pa.Array] = []
    if numbers is not None:
        given = numbers.combine_chunks().cast(pa.int64())
        _check_range(given, count)
        choices.append(given)
    if "key" in content.schema.names:
        hashes = key_hashes(content.column("key").combine_chunks())
        choices.append(pc.subtract(hashes, pc.multiply(pc.divide(hashes, count), count)))
    return pc.coalesce(*choices) if choices else pa.nulls(content.num_rows, pa.int64())


def _by_partition(
    content: pa.Table, targets: pa.Int64Array, count: int, led: Sequence[int]
) -> Iterator[tuple[int, pa.Table]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    runs = _runs(targets.null_count, led)
    if targets.null_count == content.num_rows:
        start = 0
        for partition, size in runs:
            yield partition, content.slice(start, size)
            start += size
        return
    if runs:
        chosen = pa.concat_arrays(
            [pa.repeat(pa.scalar(partition, pa.int64()), size) for partition, size in runs]
        )
        targets = pc.replace_with_mask(targets, targets.is_null(), chosen)
    for partition in range(count):
        rows = content.filter(pc.equal(targets, partition))
        if rows.num_rows:
            yield partition, rows


def _check_range(targets: pa.Int64Array, count: int) -> None:
    import pyarrow.compute as pc

    bounds = pc.min_max(targets).as_py()
    if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] < count:
        raise failure(
            KafkaError._UNKNOWN_PARTITION,
            f"partitions {bounds['min']} to {bounds['max']} are asked for, the topic has {count} partitions",
        )


def _runs(rows: int, led: Sequence[int]) -> list[tuple[int, int]]:
    """Cut rows that may go to any partition into equal runs; a random partition gets the first.

    Returns partition and number of rows of each run.
    """
    size = max(-(-rows // len(led)), 1)
    first = random.randrange(len(led))
    return [
        (led[(first + number) % len(led)], min(size, rows - start))
        for number, start in enumerate(range(0, rows, size))
    ]
