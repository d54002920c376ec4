"""What a broker and a cluster for tests have in common: an end with `with`, first topics, and settings of tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

# A group's first member creates this topic: one partition is made faster than fifty.
TEST_SETTINGS: Mapping[str, str] = {"offsets.topic.num.partitions": "1"}


class Serving(ABC):
    """Runs when it was made, and ends with `stop` or `with`."""

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def create_topic(self, name: str, partitions: int = 1) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _create_topics(self, topics: Iterable[str] | Mapping[str, int]) -> None:
        """Names, or names with their numbers of partitions; where that fails it is stopped, too."""
        try:
            named = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
            for name, partitions in named.items():
                self.create_topic(name, partitions)
        except BaseException:
            self.stop()
            raise
