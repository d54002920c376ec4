"""What a broker and a cluster for tests share: `with`, the first topics, and settings for tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Self

from felice.server.process.embedded import stopping_after

# The first member of a group creates this topic: one partition is created faster than fifty.
TEST_SETTINGS: Mapping[str, str] = {"offsets.topic.num.partitions": "1"}


class Serving(ABC):
    """Something that runs from its creation until `stop` or the end of a `with` block."""

    @abstractmethod
    def stop(self) -> None:
        """Stops the brokers and deletes temporary data. May be called again."""

    @abstractmethod
    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Creates a topic, and returns when clients can write to it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with stopping_after(error):
            self.stop()

    def _create_topics(self, topics: Iterable[str] | Mapping[str, int]) -> None:
        """Create topics, given as names or as names with numbers of partitions. Stops on an error, and raises it."""
        try:
            named = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
            for name, partitions in named.items():
                self.create_topic(name, partitions)
        except BaseException as error:
            with stopping_after(error):
                self.stop()
            raise
