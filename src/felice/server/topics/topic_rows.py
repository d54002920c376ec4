"""Encoded rows of topics in answers about metadata, kept until the topic or a broker changes.

Keeps true:  a row that is kept equals the row that would be built now. It depends on its topic, on the live brokers
             and on its key; a change of the first two drops it.
             The rows that are kept hold at most `max_bytes`.
How:         an image shares unchanged topics and brokers with its predecessor, so comparing identities shows changes.
             Building and encoding the row of 5,000 partitions takes some 20 ms of the event loop, copying it 20 µs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import field
from typing import TypeVar, cast

from felice.dataclass import dataclass
from felice.metadata import BrokerImage, ClusterImage, TopicImage
from felice.protocol.codec import encode_element
from felice.protocol.primitives import Encoded

Row = TypeVar("Row")

MAX_BYTES = 16 * 1024 * 1024
_ENTRY_BYTES = 512  # of a row beside its data: key, objects, places in two dictionaries


@dataclass(slots=True)
class _KnownTopic:
    topic: TopicImage
    rows: dict[Hashable, Encoded] = field(default_factory=dict)
    size_bytes: int = 0


class TopicRows:
    """A cache for handlers of APIs whose arrays of topics are declared with `may_be_encoded`."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        """If `max_bytes` is 0, nothing is kept or encoded: every row is new, and its receiver may change it."""
        self.size_bytes = 0
        self._max_bytes = max_bytes
        self._topics: Mapping[str, TopicImage] = {}
        self._brokers: Mapping[int, BrokerImage] = {}
        self._known: dict[str, _KnownTopic] = {}  # the topic that was first asked for is the first to go

    def row(
        self,
        image: ClusterImage,
        topic: TopicImage,
        message: type,
        version: int,
        key: Hashable,
        build: Callable[[], Row],
    ) -> Row:
        """The row of `topic` in a `message` of `version`: as it is kept, or built.

        `key` names everything else that `build` depends on, apart from `image.brokers`.
        """
        if not self._max_bytes:
            return build()
        self._follow(image)
        known = self._known.get(topic.name)
        if known is None or known.topic is not topic:
            self._drop(topic.name)
            known = self._known[topic.name] = _KnownTopic(topic)
        whole_key = message, version, key
        row = known.rows.get(whole_key)
        if row is None:
            row = known.rows[whole_key] = encode_element(build(), message, version)
            size_bytes = len(row.data) + _ENTRY_BYTES
            known.size_bytes += size_bytes
            self.size_bytes += size_bytes
            self._make_room()
        return cast(Row, row)

    def _follow(self, image: ClusterImage) -> None:
        if image.brokers is not self._brokers:
            self._brokers = image.brokers
            self._known.clear()
            self.size_bytes = 0
        if image.topics is not self._topics:
            self._topics = image.topics
            for name in self._known.keys() - image.topics.keys():
                self._drop(name)

    def _drop(self, name: str) -> None:
        known = self._known.pop(name, None)
        if known is not None:
            self.size_bytes -= known.size_bytes

    def _make_room(self) -> None:
        while self.size_bytes > self._max_bytes:
            self._drop(next(iter(self._known)))
