"""Where the records of a worker's configurations and states are: in a topic that workers share, or in memory.

Keeps true:  every record of a journal is applied once, in the order of the journal, on the event loop. `write` returns
             when its records are applied here, and all of them are in the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from felice.client.compacted.records import CompactedRecord
from felice.client.compacted.topic import CompactedTopic
from felice.client.error import KafkaException
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.storage.json_records import Record

Apply = Callable[[bytes | None, bytes | None, int], None]
"""Takes the key, the value and the offset of a record. It must not raise."""


class Journal(Protocol):
    """Where records are written and read."""

    async def start(self, timeout_s: float) -> None:
        """Applies all records that are there. Raises `ConnectError`."""

    async def prepare(self) -> None:
        """Makes sure that no other worker writes, and that all that others wrote is applied. Raises `ConnectError`."""

    async def write(self, records: Sequence[Record]) -> None:
        """Writes records and applies them. Raises `ConnectError`: then it may not be known whether they are written."""

    async def catch_up(self) -> None:
        """Applies all records that others have written until now. Raises `ConnectError`."""

    async def stop(self) -> None:
        """Ends reading and writing."""


class MemoryJournal:
    """The journal of a worker that is alone: nothing of it is left after its end."""

    def __init__(self, apply: Apply) -> None:
        self._apply = apply
        self._next = 0

    async def start(self, timeout_s: float) -> None:
        """As `Journal.start`."""

    async def prepare(self) -> None:
        """As `Journal.prepare`."""

    async def write(self, records: Sequence[Record]) -> None:
        """As `Journal.write`."""
        for key, value in records:
            self._apply(key, value, self._next)
            self._next += 1

    async def catch_up(self) -> None:
        """As `Journal.catch_up`."""

    async def stop(self) -> None:
        """As `Journal.stop`."""


class TopicJournal:
    """A compacted topic with one partition, which one worker at a time writes: the last that took it over."""

    def __init__(
        self,
        client: Mapping[str, object],
        topic: str,
        fence: str,
        replication_factor: int,
        apply: Apply,
        timeout_s: float = 60.0,
        topic_configs: Mapping[str, str] | None = None,
    ) -> None:
        """`client` has the settings of clients. The topic is created if it is missing. `timeout_s` limits each call.

        `fence` is the transactional id that all writers of the topic share.
        """
        self._is_ours = False

        def on_record(record: CompactedRecord) -> None:
            apply(record.key, record.value, record.offset)

        self._timeout_s = timeout_s
        self._topic: CompactedTopic[bytes, bytes] = CompactedTopic(
            client,
            topic,
            on_record=on_record,
            fence=fence,
            keep=False,
            replication_factor=replication_factor,
            topic_configs=topic_configs,
            write_timeout_s=timeout_s,
        )

    async def start(self, timeout_s: float) -> None:
        """As `Journal.start`."""
        try:
            await self._topic.start(timeout_s)
        except KafkaException as error:
            raise self._failed("read", error) from error

    async def prepare(self) -> None:
        """As `Journal.prepare`: takes the topic over, and reads what its writer before wrote."""
        if self._is_ours:
            return
        try:
            await self._topic.take_over(self._timeout_s)
            await self._topic.wait_end(self._timeout_s)
        except KafkaException as error:
            raise self._failed("taken over", error) from error
        self._is_ours = True

    async def write(self, records: Sequence[Record]) -> None:
        """As `Journal.write`. The topic must be prepared; after an error it must be so again."""
        try:
            offset = await self._topic.write(records)
        except KafkaException as error:
            self._is_ours = False
            raise self._failed("written", error) from error
        try:
            await self._topic.wait_read(offset, self._timeout_s)
        except KafkaException as error:
            raise self._failed("read", error) from error

    async def catch_up(self) -> None:
        """As `Journal.catch_up`."""
        try:
            await self._topic.wait_end(self._timeout_s)
        except KafkaException as error:
            raise self._failed("read", error) from error

    async def stop(self) -> None:
        """As `Journal.stop`."""
        await self._topic.stop()

    def _failed(self, what: str, error: KafkaException) -> ConnectError:
        return ConnectError(f"the topic {self._topic.name} cannot be {what}: {error.error.str()}")
