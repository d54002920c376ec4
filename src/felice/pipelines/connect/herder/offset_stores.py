"""Opens the offsets of connectors: in a standalone worker's file, or in the topic of distributed workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Protocol

from felice.pipelines.connect.configuration.worker import Client, client_config
from felice.pipelines.connect.configuration.worker_options import WorkerConfig
from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.herder.offsets import Offsets
from felice.pipelines.connect.model.tasks import TaskId
from felice.pipelines.connect.storage.offset_file import OffsetFile
from felice.pipelines.connect.storage.offset_topic import TopicOffsets

OWN_TOPIC = "offsets.storage.topic"
"""The option of a connector that keeps its offsets in a topic of its own (KIP-618)."""


class OffsetStores(Protocol):
    """Where the offsets of the connectors of a worker are."""

    at_worker: bool
    """Whether tasks ask their worker for offsets."""

    def of(self, name: str, config: Mapping[str, str]) -> Offsets:
        """The offsets of a connector with this configuration, to be used for a while."""

    def opened(self, name: str, config: Mapping[str, str]) -> AbstractContextManager[Offsets]:
        """As `of`, closed at the end."""


class FileStores:
    """The stores of a standalone worker."""

    at_worker = True

    def __init__(self, file: OffsetFile) -> None:
        self._file = file

    def of(self, name: str, config: Mapping[str, str]) -> Offsets:
        """As `OffsetStores.of`."""
        return self._file.of(name)

    @contextmanager
    def opened(self, name: str, config: Mapping[str, str]) -> Iterator[Offsets]:
        """As `OffsetStores.opened`."""
        yield self._file.of(name)


class TopicStores:
    """The stores of a distributed worker."""

    at_worker = False

    def __init__(self, worker: WorkerConfig, topic: str) -> None:
        self._worker = worker
        self._topic = topic

    def of(self, name: str, config: Mapping[str, str]) -> Offsets:
        """As `OffsetStores.of`. Each call of its methods opens the topic."""
        return _Briefly(self, name, config)

    def opened(self, name: str, config: Mapping[str, str]) -> AbstractContextManager[Offsets]:
        """As `OffsetStores.opened`."""
        about = self._worker.given, config
        task = TaskId(name, 0)
        return closing(
            TopicOffsets(
                name,
                config.get(OWN_TOPIC) or self._topic,
                client_config(*about, Client.CONSUMER, task, name="offsets-consumer"),
                client_config(*about, Client.PRODUCER, task, name="offsets-producer"),
            )
        )


class _Briefly:
    """Offsets in a topic that is opened for each call: a connector asks seldom."""

    def __init__(self, stores: TopicStores, name: str, config: Mapping[str, str]) -> None:
        self._of = stores, name, config

    def read(self, partitions: Sequence[Place]) -> list[Place | None]:
        with self._opened() as found:
            return found.read(partitions)

    def write(self, offsets: Sequence[tuple[Place, Place | None]]) -> None:
        with self._opened() as found:
            found.write(offsets)

    def all(self) -> list[tuple[Place, Place]]:
        with self._opened() as found:
            return found.all()

    def _opened(self) -> AbstractContextManager[Offsets]:
        stores, name, config = self._of
        return stores.opened(name, config)
