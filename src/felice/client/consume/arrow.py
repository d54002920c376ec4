"""Delivers fetched data as one pyarrow table, without a Python object per row.

Keeps true:  The table holds the rows that polling would have delivered next, partition by partition. Positions advance
             accordingly, so an application may mix polling and tables. An unreadable batch, like every other error,
             is raised in its place: the rows before it are delivered first, and the error costs no readable row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.client.consume.delivery import Delivery, Fetched
from felice.client.consume.subscription import AssignedPartition, Gathering
from felice.client.error import KafkaError, KafkaException, error_of
from felice.client.model import Message
from felice.protocol.errors import ApiError
from felice.records.arrow import ArrowReader, arrow_schema
from felice.records.batch import BatchHeader

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowDelivery:
    """Collects rows from a `Delivery` until it has enough rows or bytes."""

    def __init__(self, delivery: Delivery, *, with_headers: bool, check_crcs: bool) -> None:
        self._delivery = delivery
        self._with_headers = with_headers
        self._check_crcs = check_crcs
        self._pieces: list[tuple[Fetched, pa.RecordBatch]] = []
        self._error: KafkaException | None = None
        self._gathering: Gathering | None = None
        self.rows = 0
        self.size_bytes = 0

    def take(self, max_rows: int, max_bytes: int) -> bool:
        """Take what is fetched; True if there is enough, or an error that the application must see first."""
        gathering = self._delivery.start_taking()
        if gathering is not self._gathering:
            # The first time, or another call came in between and got what was taken here.
            self._gathering, self._pieces, self.rows, self.size_bytes = gathering, [], 0, 0
        enough = self._take(max_rows, max_bytes)
        self._delivery.stop_taking()
        return enough

    def _take(self, max_rows: int, max_bytes: int) -> bool:
        while self.rows < max_rows and self.size_bytes < max_bytes:
            item = self._delivery.take_fetched()
            if item is None:
                return False
            if isinstance(item, Message):
                if self._on_message(item):
                    return True
            elif not self._read(item, max_rows):
                return True
        return True

    def _on_message(self, message: Message) -> bool:
        error = message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            return False
        if self._pieces:
            self._delivery.put_back(message)
        else:
            self._error = KafkaException(error)
        return True

    def _read(self, fetched: Fetched, max_rows: int) -> bool:
        """Take the rows of one fetched piece; False if one of its batches is unreadable."""
        partition = fetched.partition
        headers = [header for header in fetched.headers if header.next_offset > (partition.position or 0)]
        pieces, fault = self._decode(fetched, headers)
        for piece in pieces:
            room = max_rows - self.rows
            if piece.num_rows > room:
                # The piece stays in the queue; the position says which of its rows comes next.
                partition.position = piece.column("offset")[room].as_py()
                self._keep(fetched, piece.slice(0, room))
                return True
            self._keep(fetched, piece)
        if fault is None:
            self._delivery.finish(fetched)
            return True
        bad, error = fault
        if self._pieces:
            partition.position = max(partition.position or 0, bad.base_offset)
        else:
            partition.position = bad.next_offset
            where = f"{partition.topic}-{partition.partition}: {error}"
            self._error = KafkaException(error_of(KafkaError._BAD_MSG, where))
        return False

    def _decode(
        self, fetched: Fetched, headers: list[BatchHeader]
    ) -> tuple[list[pa.RecordBatch], tuple[BatchHeader, ApiError] | None]:
        """Return the rows before the first unreadable batch, and the header and error of that batch."""
        reader = self._reader(fetched.partition)
        found: list[pa.RecordBatch] = []
        for index, header in enumerate(headers):
            try:
                found += reader.add(_bytes_of(fetched, header))
            except ApiError as error:
                # Decode again without the bad batch: the reader may hold a part of its rows.
                return self._decode(fetched, headers[:index])[0], (header, error)
        rest = reader.finish()
        return [*found, *([rest] if rest is not None else [])], None

    def _reader(self, partition: AssignedPartition) -> ArrowReader:
        return ArrowReader(
            partition.position or 0,
            topic=partition.topic,
            partition=partition.partition,
            with_headers=self._with_headers,
            check_crcs=self._check_crcs,
        )

    def _keep(self, fetched: Fetched, piece: pa.RecordBatch) -> None:
        if piece.num_rows:
            self._pieces.append((fetched, piece))
            self.rows += piece.num_rows
            self.size_bytes += piece.nbytes

    def table(self) -> pa.Table:
        """Return the rows taken, possibly none; raise the error if there is an error and no row.

        They count as handed out then. Leaves out what was revoked or moved meanwhile.
        """
        import pyarrow as pa

        if not self._pieces and self._error is not None:
            self._delivery.hand_over()
            raise self._error
        schema = arrow_schema(with_topic=True, with_partition=True, with_headers=self._with_headers)
        pieces = [piece for fetched, piece in self._pieces if not fetched.stale]
        table = pa.Table.from_batches(pieces, schema=schema)
        self._delivery.hand_over()
        return table


def _bytes_of(fetched: Fetched, header: BatchHeader) -> memoryview:
    return fetched.records[header.position : header.end]
