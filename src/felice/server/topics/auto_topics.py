"""Creates topics automatically: those that clients ask for in Metadata, and the internal topics of the coordinators.

Keeps true: this broker creates a topic once, however many clients ask for it at the same time. It is no error if
            another broker created the topic first.
            `ensure` creates at most `MAX_CREATING` topics of clients at once, and the Metadata handler stops at
            `felice.auto.create.topics.max.at.once`. Further names are created when a client asks for them again.
            The internal topics are created even then.
            A client waits for a creation for at most `CREATION_WAIT_S`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from felice.controller import topic_names
from felice.controller.cluster_admin import ClusterAdmin
from felice.controller.topic_plans import NewTopic
from felice.metadata.store import StoreError
from felice.metadata.watcher import Watcher
from felice.protocol.errors import ApiError, ErrorCode
from felice.server.configs.settings import Settings
from felice.server.lifecycle import Lifecycle

_log = logging.getLogger("felice.server")

MAX_CREATING = 1000

# librdkafka asks again for a missing topic only after a pause that doubles (20, 40 ... 640 ms), so that an answer after
# the creation is much earlier than an answer at once and a second request.
CREATION_WAIT_S = 0.25

_REPLICAS_FOR_SAFETY = 3
_MIN_ISR_OF_OFFSETS = 2


class AutoTopics:
    """The topics that one broker is creating."""

    def __init__(
        self,
        settings: Settings,
        lifecycle: Lifecycle,
        watcher: Watcher,
        cluster_admin: ClusterAdmin,
        *,
        stands_alone: bool,
    ) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        self._watcher = watcher
        self._cluster_admin = cluster_admin
        # Whether this broker is the only one that can ever hold replicas.
        self._stands_alone = stands_alone
        self._creating: dict[str, asyncio.Task[int]] = {}
        # The last reported reason why an internal topic could not be created. Clients retry until the topic exists.
        self._reported: dict[str, str] = {}

    async def create(self, name: str) -> int:
        """Creates a topic unless it exists. Returns an error code, 0 when the topic exists."""
        if name in self._watcher.image.topics:
            return ErrorCode.NONE
        task = self._creating.get(name)
        if task is None:
            task = self._creating[name] = asyncio.create_task(self._create_once(name))
        return await asyncio.shield(task)

    @property
    def under_way(self) -> int:
        """The number of topics that are being created."""
        return len(self._creating)

    def ensure(self, name: str) -> int:
        """Starts to create a topic in the background. Returns the number of partitions that it will have.

        Returns 0 if it starts nothing: the topic exists or is being created, too many are, or the broker stops.
        """
        is_known = name in self._watcher.image.topics or name in self._creating
        if is_known or self._lifecycle.is_stopping:
            return 0
        if name not in topic_names.INTERNAL_TOPICS and len(self._creating) >= MAX_CREATING:
            return 0
        self._creating[name] = asyncio.create_task(self._create_once(name))
        return self._partitions_of(name)

    def is_creating(self, names: Iterable[str]) -> bool:
        """Whether any of these topics is being created."""
        return not self._creating.keys().isdisjoint(names)

    async def wait_created(self, names: Iterable[str]) -> None:
        """Waits until none of these topics is being created, for at most `CREATION_WAIT_S`."""
        tasks = [task for name in names if (task := self._creating.get(name)) is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=CREATION_WAIT_S)

    def _partitions_of(self, name: str) -> int:
        count = self._new_topic(name).partition_count
        return self._settings.config.num_partitions if count < 0 else count

    def fault_of(self, name: str) -> str | None:
        """Returns the reason why an internal topic could not be created, or None."""
        return self._reported.get(name)

    async def finish(self) -> None:
        """Waits until no topic is being created."""
        await asyncio.gather(*self._creating.values(), return_exceptions=True)

    async def _create_once(self, name: str) -> int:
        try:
            await self._cluster_admin.create_topic(self._new_topic(name))
        except ApiError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                self._report(name, error.message)
                return error.code
        except StoreError as error:
            self._report(name, str(error))
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        finally:
            del self._creating[name]
        self._reported.pop(name, None)
        return ErrorCode.NONE

    def _report(self, name: str, reason: str) -> None:
        if self._reported.get(name) != reason:
            _log.warning("topic was not created", extra={"topic": name, "reason": reason})
        if name in topic_names.INTERNAL_TOPICS:
            self._reported[name] = reason

    def _new_topic(self, name: str) -> NewTopic:
        config = self._settings.config
        if name == topic_names.CONSUMER_OFFSETS:
            count, wanted = config.offsets_topic_num_partitions, config.offsets_topic_replication_factor
            segment_bytes, min_isr = config.offsets_topic_segment_bytes, self._min_isr_of_offsets(wanted)
        elif name == topic_names.TRANSACTION_STATE:
            count = config.transaction_state_log_num_partitions
            wanted = config.transaction_state_log_replication_factor
            segment_bytes = config.transaction_state_log_segment_bytes
            min_isr = config.transaction_state_log_min_isr
        else:
            return NewTopic(name)
        replicas = self._possible_replicas(name, wanted)
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(segment_bytes),
            "min.insync.replicas": str(min(min_isr, replicas)),
        }
        return NewTopic(name, count, replicas, configs=configs)

    def _min_isr_of_offsets(self, replicas: int) -> int:
        """min.insync.replicas of `__consumer_offsets`: 2 with three or more replicas, unless the configuration sets it.

        Kafka uses the brokers' default of 1: then the failure of one broker can lose an acknowledged commit.
        """
        config = self._settings.config
        asked = config.topic_defaults().get("min_insync_replicas", 1)
        assert isinstance(asked, int)
        is_set = "min.insync.replicas" in config.originals
        return asked if is_set or replicas < _REPLICAS_FOR_SAFETY else max(asked, _MIN_ISR_OF_OFFSETS)

    def _possible_replicas(self, name: str, wanted: int) -> int:
        alive = max(1, len(self._watcher.image.brokers))
        if wanted <= alive or not self._stands_alone:
            return wanted
        # No other broker will ever join, so waiting would leave groups without a coordinator for ever.
        _log.warning(
            "internal topic gets fewer replicas than configured",
            extra={"topic": name, "replicas": alive, "asked": wanted},
        )
        return alive
