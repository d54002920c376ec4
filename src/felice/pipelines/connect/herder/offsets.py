"""The offsets of connectors, as users read and change them: of sources in the worker's store, of sinks in their group.

Keeps true:  offsets change only while no task runs, which the caller checks. A connector that refuses an offset changes
             nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from felice.client.admin import AdminClient, ConsumerGroupTopicPartitions
from felice.client.error import KafkaException
from felice.client.model import TopicPartition
from felice.dataclass import dataclass
from felice.pipelines.connect.connector.base import Connector, SinkConnector, SourceConnector
from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.herder.errors import bad_request
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.storage.offset_records import key_text
from felice.pipelines.connect.task.source_offsets import OffsetStore

TOPIC, PARTITION, OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"
"""The names in the partitions and offsets of sinks."""
_WAIT_S = 30.0


class Offsets(OffsetStore, Protocol):
    """The offsets of one connector, all of which can be listed."""

    def all(self) -> list[tuple[Place, Place]]:
        """Every partition of the source with its offset. Raises `ConnectError`."""


@dataclass(frozen=True, slots=True)
class OffsetsOf:
    """Whose offsets they are: a connector's class and configuration, with references replaced.

    `open_source` opens the offsets of a source, and `open_admin` a client for the group of a sink.
    """

    name: str
    kind: type[Connector]
    config: Mapping[str, str]
    open_source: Callable[[], AbstractContextManager[Offsets]]
    open_admin: Callable[[], AdminClient]
    group: str

    async def read(self) -> list[tuple[Place, Place]]:
        """All offsets. Raises `ConnectError`."""
        return await asyncio.to_thread(self._read)

    async def change(self, changes: Sequence[tuple[Place, Place | None]] | None) -> str:
        """Sets offsets; None as an offset resets it, and None as `changes` all. Returns what to tell the user.

        Raises `ConnectError`.
        """
        return await asyncio.to_thread(self._change, changes)

    def _read(self) -> list[tuple[Place, Place]]:
        if issubclass(self.kind, SourceConnector):
            with self.open_source() as offsets:
                return offsets.all()
        with self._admin() as admin:
            return [
                ({PARTITION: one.partition, TOPIC: one.topic}, {OFFSET: one.offset})
                for one in self._committed(admin)
            ]

    def _change(self, changes: Sequence[tuple[Place, Place | None]] | None) -> str:
        if issubclass(self.kind, SourceConnector):
            is_checked = self._change_source(self.kind, changes)
        else:
            assert issubclass(self.kind, SinkConnector)
            is_checked = self._change_sink(self.kind, changes)
        what = "reset" if changes is None else "altered"
        if is_checked:
            return f"The offsets for this connector have been {what} successfully"
        return (
            f"The Connect framework-managed offsets for this connector have been {what} successfully. "
            "However, if this connector manages offsets externally, they will need to be manually "
            f"{what} in the system that the connector uses."
        )

    # Sources

    def _change_source(
        self, kind: type[SourceConnector], changes: Sequence[tuple[Place, Place | None]] | None
    ) -> bool:
        with self.open_source() as offsets:
            if changes is None:
                changes = [(partition, None) for partition, _ in offsets.all()]
            checked = kind.alter_offsets(self.config, {key_text(place): at for place, at in changes})
            offsets.write(changes)
        return checked

    # Sinks

    @contextlib.contextmanager
    def _admin(self) -> Iterator[AdminClient]:
        admin = self.open_admin()
        try:
            yield admin
        except KafkaException as error:
            why = error.error.str()
            raise ConnectError(f"Failed to read or alter the offsets of group {self.group}: {why}") from error
        finally:
            admin.close()

    def _committed(self, admin: AdminClient) -> list[TopicPartition]:
        asked = [ConsumerGroupTopicPartitions(self.group)]
        found = admin.list_consumer_group_offsets(asked, request_timeout=_WAIT_S)[self.group].result()
        return [one for one in found.topic_partitions or () if one.error is None and one.offset >= 0]

    def _change_sink(
        self, kind: type[SinkConnector], changes: Sequence[tuple[Place, Place | None]] | None
    ) -> bool:
        with self._admin() as admin:
            if changes is None:
                wanted: dict[tuple[str, int], int | None] = {
                    (one.topic, one.partition): None for one in self._committed(admin)
                }
            else:
                wanted = dict(_of_sink(changes))
            checked = kind.alter_offsets(self.config, wanted)
            self._set(admin, {at: offset for at, offset in wanted.items() if offset is not None})
            self._delete(admin, [at for at, offset in wanted.items() if offset is None])
        return checked

    def _set(self, admin: AdminClient, offsets: Mapping[tuple[str, int], int]) -> None:
        if not offsets:
            return
        places = [TopicPartition(*at, offset) for at, offset in offsets.items()]
        request = [ConsumerGroupTopicPartitions(self.group, places)]
        done = admin.alter_consumer_group_offsets(request, request_timeout=_WAIT_S)[self.group].result()
        _check(done, self.name)

    def _delete(self, admin: AdminClient, places: Sequence[tuple[str, int]]) -> None:
        if not places:
            return
        left = {(one.topic, one.partition) for one in self._committed(admin)} - set(places)
        if not left:
            admin.delete_consumer_groups([self.group], request_timeout=_WAIT_S)[self.group].result()
            return
        gone = ConsumerGroupTopicPartitions(self.group, [TopicPartition(*at) for at in places])
        done = admin.delete_consumer_group_offsets([gone], request_timeout=_WAIT_S)[self.group].result()
        _check(done, self.name)


def _check(done: ConsumerGroupTopicPartitions, name: str) -> None:
    for one in done.topic_partitions or ():
        if one.error is not None:
            raise ConnectError(
                f"Failed to alter consumer group offsets for connector {name}: {one.error.str()}"
            )


def _of_sink(changes: Iterable[tuple[Place, Place | None]]) -> Iterable[tuple[tuple[str, int], int | None]]:
    """The partitions and offsets of a sink that a user gave. Raises `RequestError` with Kafka's texts."""
    for place, at in changes:
        if TOPIC not in place or PARTITION not in place:
            raise bad_request(
                f"The partition for a sink connector offset must contain the keys '{TOPIC}' and '{PARTITION}'"
            )
        topic = str(place[TOPIC])
        partition = _number(
            place[PARTITION],
            "Failed to parse the following Kafka partition value in the provided offsets: '{}'. "
            "Partition values for sink connectors need to be integers.",
        )
        if at is None:
            yield (topic, partition), None
            continue
        if OFFSET not in at:
            raise bad_request(
                f"The offset for a sink connector should either be null or contain the key '{OFFSET}'"
            )
        offset = _number(
            at[OFFSET],
            "Failed to parse the following Kafka offset value in the provided offsets: '{}'. "
            "Offset values for sink connectors need to be integers.",
        )
        if offset < 0:
            raise bad_request(f"an offset must be 0 or more, not {offset}")
        yield (topic, partition), offset


def _number(value: Any, message: str) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise bad_request(message.format(value)) from None
