"""Topics that a source writes to and that do not exist yet: created by the connector's `topic.creation.*` groups.

Keeps true:  a topic is looked for once. One that another creates at the same time counts as created.
Source:      KIP-158.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from felice.client.admin import AdminClient
from felice.client.admin.model import NewTopic
from felice.client.error import KafkaError, KafkaException
from felice.dataclass import dataclass
from felice.pipelines.connect.model.errors import ConnectError

_log = logging.getLogger("felice.connect.task")


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """A group of `topic.creation.groups`, or the default one: whose topics, and how they are made.

    A replication factor or a number of partitions of -1 is the broker's default.
    """

    name: str
    replication_factor: int
    partitions: int
    include: tuple[re.Pattern[str], ...] = ()
    exclude: tuple[re.Pattern[str], ...] = ()
    configs: Mapping[str, str] = field(default_factory=dict)

    def matches(self, topic: str) -> bool:
        """Whether the group makes this topic."""
        return any(one.fullmatch(topic) for one in self.include) and not any(
            one.fullmatch(topic) for one in self.exclude
        )


class TopicCreation:
    """Creates topics. The groups are asked in their order; the last one is the default and makes all others."""

    def __init__(self, admin: AdminClient, groups: Sequence[TopicGroup], timeout_s: float = 30.0) -> None:
        self._admin = admin
        self._groups = groups
        self._timeout_s = timeout_s
        self._known: set[str] = set()

    def ensure(self, topic: str) -> None:
        """Creates the topic unless it exists. Raises `ConnectError`."""
        if topic in self._known:
            return
        if not self._exists(topic):
            self._create(topic)
        self._known.add(topic)

    def close(self) -> None:
        """Closes the admin client."""
        self._admin.close()

    def _exists(self, topic: str) -> bool:
        try:
            found = self._admin.list_topics(topic, self._timeout_s).topics.get(topic)
        except KafkaException as error:
            raise ConnectError(f"cannot look for topic {topic}: {error.args[0].str()}") from error
        return found is not None and found.error is None

    def _create(self, topic: str) -> None:
        group = next((one for one in self._groups[:-1] if one.matches(topic)), self._groups[-1])
        wanted = NewTopic(topic, group.partitions, group.replication_factor, config=dict(group.configs))
        try:
            self._admin.create_topics([wanted], request_timeout=self._timeout_s)[topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise ConnectError(
                    f"Error while attempting to create/find topic(s) '{topic}': {error.args[0].str()}"
                ) from error
            return
        _log.info("Created topic %s with group %s", topic, group.name)
