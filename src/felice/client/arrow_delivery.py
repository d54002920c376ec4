"""Fetched data as one pyarrow table, without a Python object per row.

Keeps true:  the table holds the rows that polling would have delivered next, partition by partition, and positions
             move accordingly: polling and columns may be mixed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from felice.client.delivery import Delivery, Fetched
from felice.client.errors import KafkaError, KafkaException, error_of
from felice.client.model import Message
from felice.client.subscription import AssignedPartition
from felice.protocol.errors import ApiError
from felice.records.arrow import ArrowReader, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowDelivery:
    """Takes from a `Delivery` until there are enough rows or bytes."""

    def __init__(self, delivery: Delivery, *, with_headers: bool, check_crcs: bool) -> None:
        self._delivery = delivery
        self._with_headers = with_headers
        self._check_crcs = check_crcs
        self._pieces: list[pa.RecordBatch] = []
        self._error: KafkaException | None = None
        self.rows = 0
        self.size_bytes = 0

    def take(self, max_rows: int, max_bytes: int) -> bool:
        """Take what is here; True when there is enough, or something that the application must see first."""
        while self.rows < max_rows and self.size_bytes < max_bytes:
            item = self._delivery.take_fetched()
            if item is None:
                return False
            if isinstance(item, Message):
                if self._on_message(item):
                    return True
            else:
                self._read(item, max_rows)
        return True

    def _on_message(self, message: Message) -> bool:
        error = message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            return False
        self._error = KafkaException(error)
        return True

    def _read(self, fetched: Fetched, max_rows: int) -> None:
        partition = fetched.partition
        reader = self._reader(partition)
        try:
            found = [piece for header in fetched.headers for piece in reader.add(_bytes_of(fetched, header))]
        except ApiError as error:
            self._delivery.finish(fetched)
            where = f"{partition.topic}-{partition.partition}: {error}"
            raise KafkaException(error_of(KafkaError._BAD_MSG, where)) from None
        rest = reader.finish()
        for piece in [*found, *([rest] if rest is not None else [])]:
            room = max_rows - self.rows
            if piece.num_rows > room:
                # The piece stays in its place; the position says where to go on in it.
                partition.position = piece.column("offset")[room].as_py()
                self._keep(piece.slice(0, room))
                return
            self._keep(piece)
        self._delivery.finish(fetched)

    def _reader(self, partition: AssignedPartition) -> ArrowReader:
        return ArrowReader(
            partition.position or 0,
            topic=partition.topic,
            partition=partition.partition,
            with_headers=self._with_headers,
            check_crcs=self._check_crcs,
        )

    def _keep(self, piece: Any) -> None:
        if piece.num_rows:
            self._pieces.append(piece)
            self.rows += piece.num_rows
            self.size_bytes += piece.nbytes

    def table(self) -> pa.Table:
        """What was taken, perhaps without rows; raises if there is nothing but an error."""
        import pyarrow as pa

        if not self._pieces and self._error is not None:
            raise self._error
        schema = arrow_schema(with_topic=True, with_partition=True, with_headers=self._with_headers)
        return pa.Table.from_batches(self._pieces, schema=schema)


def _bytes_of(fetched: Fetched, header: Any) -> memoryview:
    return fetched.records[header.position : header.end]
