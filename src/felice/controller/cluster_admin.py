"""Changes of the cluster that clients ask for: topics, partitions, configurations, feature levels.

Keeps true: C1 every decision is one multi that also checks the controller epoch and the versions that it was based on.
            Therefore the broker that receives a request decides; it forwards no request.
            A topic, its partitions' states and its configuration appear together and disappear together.
How:        decisions read the current image, whose versions the writes check. After a version conflict the decision
            is made again on a newer image.
Leaves:     the content of new topics and partitions to `topic_plans`; changes that no client asks for to `controller`.
            The other brokers need no message: they watch the store.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from felice.config import BrokerConfig
from felice.controller import deletion, topic_plans
from felice.controller.election import first_state
from felice.controller.features import FeatureChange, plan_levels
from felice.controller.topic_plans import NewTopic, PlannedTopic
from felice.controller.writing import (
    FOLLOW_TIMEOUT_S,
    LOST_RACE,
    EpochPassed,
    answering,
    write_guarded,
)
from felice.env import Random
from felice.metadata import (
    BadVersion,
    ClusterImage,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    NotEmpty,
    SetData,
    TopicImage,
    identity,
    layout,
)
from felice.metadata.client_entity import ClientEntity
from felice.metadata.layout import MAX_STATES_PER_TRANSACTION, TopicNode
from felice.metadata.store import Operation
from felice.metadata.watcher import Watcher
from felice.protocol.errors import ApiError, ErrorCode

_MAX_ATTEMPTS = 10
_MIN_INSYNC = "min.insync.replicas"

_log = logging.getLogger("felice.controller")


class ClusterAdmin:
    """Carries out the changes that clients ask for. `config` returns the broker's current configuration."""

    def __init__(
        self,
        store: MetadataStore,
        watcher: Watcher,
        random: Random,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._store = store
        self._watcher = watcher
        self._random = random
        self._config = config

    @property
    def _image(self) -> ClusterImage:
        return self._watcher.image

    @answering
    async def create_topic(self, requested: NewTopic, *, validate_only: bool = False) -> PlannedTopic:
        """Creates the topic; the image shows it when this returns."""
        for _ in range(_MAX_ATTEMPTS):
            planned = topic_plans.plan_topic(requested, self._image, self._config(), self._random)
            if validate_only:
                return planned
            if await self._try_create(planned):
                _warn_of_min_insync(planned.name, planned.configs, planned.replication_factor)
                return planned
        raise ApiError(ErrorCode.NOT_CONTROLLER, "controllers kept changing")

    async def _try_create(self, planned: PlannedTopic) -> bool:
        version = self._image.controller_epoch_version
        node = TopicNode(planned.topic_id, planned.partitions, {}, {})
        operations: list[Operation] = [
            Create(layout.topic_path(planned.name), layout.encode_topic(node)),
            *identity.made(planned.name, planned.topic_id),
            Create(layout.partitions_path(planned.name)),
            *self._new_partitions(planned.name, planned.partitions),
        ]
        if await self._store.exists(layout.topic_config_path(planned.name)):
            operations.append(Delete(layout.topic_config_path(planned.name)))
        operations.append(
            Create(layout.topic_config_path(planned.name), layout.encode_config(planned.configs))
        )
        try:
            if not await self._write(version, operations):
                return False
        except NodeExists:
            raise topic_plans.already_exists(planned.name) from None
        await self._follow(lambda image: _has_leaders(image.topic_by_id(planned.topic_id)))
        return True

    @answering
    async def delete_topic(self, name: str) -> None:
        """Deletes the topic and everything that belongs to it; the image lacks it when this returns."""
        wanted = self._existing(name)
        for _ in range(_MAX_ATTEMPTS):
            topic = self._existing(name)
            if topic.topic_id != wanted.topic_id:
                raise _unknown_topic()  # deleted by another broker; the name now belongs to another topic
            if await self._try_delete(topic):
                return
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{name} kept changing while it was deleted")

    async def _try_delete(self, topic: TopicImage) -> bool:
        version = self._image.controller_epoch_version
        is_large = len(topic.partitions) > MAX_STATES_PER_TRANSACTION
        operations = deletion.begun(topic) if is_large else deletion.whole(topic)
        if await self._store.exists(layout.topic_config_path(topic.name)):
            operations.append(Delete(layout.topic_config_path(topic.name)))
        if await self._store.exists(layout.DELETED_TOPICS) is None:
            # The brokers that started this cluster had no deletion records, or an operator removed the node.
            with suppress(NodeExists):
                await self._store.create(layout.DELETED_TOPICS)
        try:
            if not await self._write(version, operations, topic):
                return False
        except (BadVersion, NoNode, NotEmpty):
            # Partitions were added or reassigned since the image was made: decide again when it shows them.
            await self._follow(lambda image: image.topics.get(topic.name) is not topic)
            return False
        await self._follow(
            lambda image: (
                image.topic_by_id(topic.topic_id) is None and topic.name not in image.pending_deletions
            )
        )
        return True

    @answering
    async def create_partitions(
        self,
        name: str,
        total_count: int,
        assignments: Sequence[Sequence[int]] | None,
        *,
        validate_only: bool = False,
    ) -> int:
        """Adds partitions until there are `total_count`, and returns how many; the image shows them then."""
        for _ in range(_MAX_ATTEMPTS):
            topic = self._existing(name)
            added = topic_plans.plan_partitions(topic, total_count, assignments, self._image)
            if validate_only or await self._try_add(topic, added):
                return len(added)
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{name} kept changing while it grew")

    async def _try_add(self, topic: TopicImage, added: Mapping[int, tuple[int, ...]]) -> bool:
        version = self._image.controller_epoch_version
        name, total_count = topic.name, len(topic.partitions) + len(added)
        replicas = {partition.partition: partition.replicas for partition in topic.partitions}
        node = TopicNode(topic.topic_id, {**replicas, **added}, {}, {})
        operations: list[Operation] = [
            SetData(layout.topic_path(name), layout.encode_topic(node), topic.version),
            *self._new_partitions(name, added),
        ]
        try:
            if not await self._write(version, operations, topic):
                return False
        except LOST_RACE:
            await self._follow(lambda image: image.topics.get(name) is not topic)
            return False
        await self._follow(lambda image: _has_leaders(image.topics.get(name), total_count))
        return True

    @answering
    async def change_topic_config(
        self,
        name: str,
        edit: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Replaces the topic's overrides by the result of `edit`."""

        changed: Mapping[str, str] = {}

        def checked(current: Mapping[str, str]) -> Mapping[str, str]:
            nonlocal changed
            changed = topic_plans.checked_topic_config(edit(current), self._config())
            return changed

        # Without the topic's id, its configuration could outlive the topic and apply to a new one of its name.
        topic = self._existing(name)
        try:
            await self._change_config(layout.topic_config_path(name), checked, validate_only, topic)
        except NoNode:
            raise _unknown_topic() from None
        if not validate_only:
            _warn_of_min_insync(name, changed, min(len(partition.target) for partition in topic.partitions))

    @answering
    async def change_config(
        self,
        path: str,
        edit: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Replaces the configuration at a path of `layout`: that of a broker or all brokers, a client metrics resource
        or a group. An empty one is the same as none."""
        await self._change_config(path, edit, validate_only)

    @answering
    async def change_client_config(
        self,
        entity: ClientEntity,
        edit: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Replaces the quotas and credentials of users, clients or an address."""
        path = layout.client_config_path(entity)
        if not validate_only:
            await self._create_parents(path)
        await self._change_config(path, edit, validate_only)

    async def _create_parents(self, path: str) -> None:
        """Creates the nodes between the roots of configurations and `path`."""
        parent = path.rpartition("/")[0]
        if parent in layout.PERSISTENT_PATHS:
            return
        await self._create_parents(parent)
        with suppress(NodeExists):
            await self._store.create(parent)

    @answering
    async def update_features(self, changes: Sequence[FeatureChange], *, validate_only: bool = False) -> None:
        """Finalizes other feature levels, all of them or none; the image shows them when this returns."""
        for _ in range(_MAX_ATTEMPTS):
            node, version = await self._store.exists(layout.FEATURES), self._image.controller_epoch_version
            brokers = {broker_id: broker.features for broker_id, broker in self._image.brokers.items()}
            levels = plan_levels(layout.decode_features(node.data) if node else {}, changes, brokers)
            if validate_only:
                return
            data = layout.encode_features(levels)
            try:
                change = (
                    SetData(layout.FEATURES, data, node.version) if node else Create(layout.FEATURES, data)
                )
                if not await self._write(version, [change]):
                    continue
            except LOST_RACE:
                continue
            epoch = node.version + 1 if node else 0
            await self._follow(lambda image, epoch=epoch: image.features_epoch >= epoch)  # type: ignore[misc]
            return
        raise ApiError(ErrorCode.FEATURE_UPDATE_FAILED, "the features kept changing")

    def _new_partitions(self, topic: str, partitions: Mapping[int, tuple[int, ...]]) -> list[Operation]:
        """A transaction has a size limit: the controller adds the remaining partitions of a very large topic."""
        operations: list[Operation] = []
        for partition, replicas in islice(partitions.items(), MAX_STATES_PER_TRANSACTION):
            state = first_state(replicas, self._image.brokers, self._image.controller_epoch)
            operations.append(Create(layout.partition_path(topic, partition)))
            operations.append(Create(layout.state_path(topic, partition), layout.encode_state(state)))
        return operations

    async def _change_config(
        self,
        path: str,
        edit: Callable[[Mapping[str, str]], Mapping[str, str]],
        validate_only: bool,
        topic: TopicImage | None = None,
    ) -> None:
        for _ in range(_MAX_ATTEMPTS):
            version = self._image.controller_epoch_version
            node = await self._store.exists(path)
            changed = edit(layout.decode_config(node.data) if node else {})
            if validate_only:
                return
            data = layout.encode_config(changed)
            try:
                change = SetData(path, data, node.version) if node else Create(path, data)
                if not await self._write(version, [change], topic):
                    continue
            except LOST_RACE as error:
                if topic is not None and error.path == layout.topic_id_path(topic.name, topic.topic_id):
                    raise
                continue
            await self._follow(lambda image, changed=changed: image.config_at(path) == changed)  # type: ignore[misc]
            return
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the configuration kept changing")

    async def _write(
        self, version: int, operations: Sequence[Operation], topic: TopicImage | None = None
    ) -> bool:
        """Returns False if the decision must be made again because the controller changed.

        `version` is that of the controller epoch in the image that the decision was based on; a newer one may exist.
        Writes about a topic also check its id: `NoNode` of the topic-id node if the name is another topic's by now.
        """
        guards = [] if topic is None else [identity.bound(topic.name, topic.topic_id)]
        try:
            await write_guarded(self._store, version, [*guards, *operations])
        except EpochPassed:
            await self._follow(lambda image: image.controller_epoch_version != version)
            return False
        except NoNode as error:
            if topic is None or error.path != guards[0].path:
                raise
            if not await identity.adopt(self._store, topic.name, topic.topic_id):
                raise
            return False
        return True

    async def _follow(self, condition: Callable[[ClusterImage], bool]) -> None:
        """Waits, up to `FOLLOW_TIMEOUT_S`, until the image shows a write: the client's next request should find it."""
        await self._watcher.wait_until(condition, FOLLOW_TIMEOUT_S)

    def _existing(self, name: str) -> TopicImage:
        topic = self._image.topics.get(name)
        if topic is None:
            raise _unknown_topic()
        return topic


def _warn_of_min_insync(topic: str, configs: Mapping[str, str], replicas: int) -> None:
    """Kafka accepts such a value silently, and treats it as the number of replicas."""
    if _MIN_INSYNC in configs and int(configs[_MIN_INSYNC]) > replicas:
        _log.warning(
            f"{_MIN_INSYNC} is above the number of replicas, and counts as that",
            extra={"topic": topic, _MIN_INSYNC: configs[_MIN_INSYNC], "replicas": replicas},
        )


def _unknown_topic() -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


def _has_leaders(topic: TopicImage | None, partition_count: int = 1) -> bool:
    return (
        topic is not None
        and len(topic.partitions) >= partition_count
        and all(partition.partition_epoch >= 0 for partition in topic.partitions)
    )
