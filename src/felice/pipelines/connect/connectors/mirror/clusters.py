"""Both clusters of a mirror: their administration, and the topics that mirrors make for themselves."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from felice.client.admin import AdminClient
from felice.client.admin.model import NewTopic
from felice.client.error import KafkaError, KafkaException
from felice.pipelines.connect.connectors.mirror.options import (
    SOURCE_ALIAS,
    SYNCS_LOCATION,
    TARGET_ALIAS,
    client_settings,
    names_of,
)
from felice.pipelines.connect.model.errors import ConnectError, RetriableError

_log = logging.getLogger("felice.connect.mirror")

T = TypeVar("T")
SOURCE, TARGET = "source", "target"
_AWAY = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
)


class Clusters:
    """The two clusters that a connector's configuration names. Close it after use, or use it in a `with` block.

    Calls raise `RetriableError` for what another try may not meet, and `ConnectError`.
    """

    def __init__(self, config: Mapping[str, str], values: Mapping[str, Any]) -> None:
        """`config` are the connector's options, `values` those of its definitions. Raises `ConfigError`."""
        self.source_alias: str = values[SOURCE_ALIAS]
        self.target_alias: str = values[TARGET_ALIAS]
        self.names = names_of(values)
        self._config = config
        self._limit_s: float = values["admin.timeout.ms"] / 1000
        self._has_syncs_at: str = values[SYNCS_LOCATION]
        self._admins: dict[str, AdminClient] = {}

    def __enter__(self) -> Clusters:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        for admin in self._admins.values():
            admin.close()
        self._admins.clear()

    def admin(self, cluster: str) -> AdminClient:
        """The administration of `SOURCE` or `TARGET`."""
        if cluster not in self._admins:
            self._admins[cluster] = AdminClient(self.settings(cluster, "admin"))
        return self._admins[cluster]

    def settings(self, cluster: str, client: str) -> dict[str, object]:
        """The settings of a client of a cluster."""
        return client_settings(self._config, cluster, client)

    def answer(self, asked: Future[T], what: str) -> T:
        """The result of a call of an admin client, which errors call `what`."""
        try:
            return asked.result(self._limit_s)
        except (KafkaException, TimeoutError) as error:
            raise failure_of(error, what) from error

    def is_answered(self, asked: Future[T], what: str) -> bool:
        """Whether a call of an admin client succeeded, which the log calls `what` if not. Then it has a result."""
        try:
            self.answer(asked, what)
        except ConnectError as error:
            _log.warning("%s", error)
            return False
        return True

    def topics(self, cluster: str) -> dict[str, int]:
        """All topics of a cluster, with their numbers of partitions."""
        try:
            found = self.admin(cluster).list_topics(timeout=self._limit_s).topics
        except KafkaException as error:
            raise failure_of(error, f"cannot list the topics of {self.alias(cluster)}") from error
        return {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}

    def alias(self, cluster: str) -> str:
        """The name of a cluster."""
        return self.source_alias if cluster == SOURCE else self.target_alias

    # The mirrors' own topics

    @property
    def syncs(self) -> tuple[str, str]:
        """The cluster that keeps offset syncs, `SOURCE` or `TARGET`, and their topic."""
        other = self.target_alias if self._has_syncs_at == SOURCE else self.source_alias
        return self._has_syncs_at, self.names.offset_syncs(other)

    def create_own(self, cluster: str, topic: str, replicas: int) -> None:
        """Creates a compacted topic with one partition, unless it is there."""
        made = NewTopic(topic, 1, replicas, config={"cleanup.policy": "compact"})
        [asked] = self.admin(cluster).create_topics([made]).values()
        try:
            asked.result(self._limit_s)
        except (KafkaException, TimeoutError) as error:
            if code_of(error) != KafkaError.TOPIC_ALREADY_EXISTS:
                text = f"cannot create the topic {topic} in {self.alias(cluster)}"
                raise failure_of(error, text) from error


def code_of(error: BaseException) -> int | None:
    """The code of an error of Kafka."""
    return error.error.code() if isinstance(error, KafkaException) else None


def failure_of(error: BaseException, what: str) -> ConnectError:
    """The error of Connect for one of a client."""
    why = error.error.str() if isinstance(error, KafkaException) else "no answer in time"
    passes = not isinstance(error, KafkaException) or may_pass(error.error)
    return (RetriableError if passes else ConnectError)(f"{what}: {why}")


def may_pass(error: KafkaError) -> bool:
    """Whether another try may succeed: also if the cluster is away, which the client calls no retriable error."""
    return error.retriable() or error.code() in _AWAY
