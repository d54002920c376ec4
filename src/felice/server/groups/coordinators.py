"""The group coordinator and the transaction coordinator of a broker, and their connections to partitions.

Both are created after the broker is ready: importing their modules would take the longest part of a start, and no
client needs them before. The event loop creates them before it reads the first request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from felice.dataclass import dataclass
from felice.env import Environment
from felice.metadata.watcher import Watcher
from felice.replication.partitions import Partitions
from felice.replication.peers import Peers
from felice.server.configs.settings import Settings
from felice.server.topics.auto_topics import AutoTopics
from felice.server.writes.producer_ids import ProducerIds

if TYPE_CHECKING:
    from felice.coordinator.group.coordinator import GroupCoordinator
    from felice.coordinator.transaction.coordinator import TransactionCoordinator
    from felice.server.writes.admission import Admission
    from felice.server.writes.transactions import MarkerWriter


@dataclass(frozen=True, slots=True)
class _Parts:
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    admission: Admission
    markers: MarkerWriter


@dataclass(slots=True)
class Coordinators:
    """The coordinators of one broker, created on first use."""

    broker_id: int
    env: Environment
    settings: Settings
    watcher: Watcher
    partitions: Partitions
    peers: Peers
    auto_topics: AutoTopics
    producer_ids: ProducerIds
    check_session: Callable[[], None]
    _parts: _Parts | None = None

    @property
    def are_made(self) -> bool:
        """Whether the coordinators exist: from the first turn of the event loop after the start on."""
        return self._parts is not None

    @property
    def groups(self) -> GroupCoordinator:
        """The coordinator of the groups whose offsets partition this broker leads."""
        return self._made.groups

    @property
    def transactions(self) -> TransactionCoordinator:
        """The coordinator of the transactional ids whose state partition this broker leads."""
        return self._made.transactions

    @property
    def admission(self) -> Admission:
        """Orders the first writes of transactions to partitions of this broker."""
        return self._made.admission

    @property
    def markers(self) -> MarkerWriter:
        """Appends the transaction markers that coordinators send to this broker."""
        return self._made.markers

    @property
    def _made(self) -> _Parts:
        assert self._parts is not None, "made before the first request"
        return self._parts

    def start(self) -> None:
        """Starts coordinating groups and transactions."""
        parts = self._parts = self._make()
        parts.groups.start()
        parts.transactions.start()

    def _make(self) -> _Parts:
        from felice.coordinator.group.coordinator import GroupCoordinator
        from felice.coordinator.transaction.coordinator import TransactionCoordinator
        from felice.server.writes.admission import Admission, TransactionCoordinators
        from felice.server.writes.transactions import MarkerWriter, PartitionLeaders

        env, watcher, config = self.env, self.watcher, self.settings.config
        groups = GroupCoordinator(
            lambda: self.settings.config, env, self.partitions, lambda: watcher.image, self.auto_topics.ensure
        )
        markers = MarkerWriter(self.partitions, groups, env.clock)
        transactions = TransactionCoordinator(
            config,
            env,
            self.partitions,
            lambda: watcher.image,
            self.auto_topics.ensure,
            self.producer_ids.next_id,
            PartitionLeaders(self.broker_id, markers, self.peers),
        )
        channel = TransactionCoordinators(
            self.broker_id, transactions, self.peers, watcher, self.settings, env.clock, self.check_session
        )
        admission = Admission(channel, env.clock, lambda: self.settings.config)
        return _Parts(groups, transactions, admission, markers)

    def follow(self) -> None:
        """Loads the partitions that this broker now leads, and unloads all others."""
        if self._parts is not None:
            self._parts.groups.on_image()
            self._parts.transactions.on_image()

    def stop(self) -> None:
        """Stops both coordinators."""
        if self._parts is not None:
            self._parts.transactions.stop()
            self._parts.groups.stop()
