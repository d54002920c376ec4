"""The partitions on this broker, by topic and number.

Keeps true: R2 a partition leads here exactly when the image says that it does.
            C12 a log is deleted only if that was requested: the deletion of its topic is recorded in the store, or this
            broker watched how its replica was removed. Any other log without a place in the image is set aside as a
            stray, and comes back with its topic.
How:        `apply` compares two images and creates, updates or deletes the partitions that differ, on the event
            loop, before any other component sees the image. The files of new partitions are made before that, on a
            thread (`make_logs`): thousands of them take seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from uuid import UUID

from felice.config import TopicConfig
from felice.log import partition_metadata
from felice.log.directory import LogDirectory
from felice.log.errors import LogDirectoryError, StrayComesBack
from felice.log.log import Log
from felice.log.readable import ReadableLog
from felice.metadata import ClusterImage, PartitionImage, TopicImage
from felice.protocol.errors import ApiError, BrokenInvariant, ErrorCode
from felice.protocol.topic_partition import PartitionKey
from felice.replication.dependencies import PartitionDependencies
from felice.replication.partition import Partition
from felice.replication.traffic import BrokerTraffic

_log = logging.getLogger("felice.replication")

# Up to this many logs are made directly in one turn of the event loop.
_MANY_LOGS = 8
_LOGS_AT_ONCE = 64

ConfigOf = Callable[[ClusterImage, str], TopicConfig]


class Partitions:
    """The partitions of this broker. `config_of` returns a topic's configuration."""

    def __init__(
        self,
        broker_id: int,
        directories: Iterable[LogDirectory],
        config_of: ConfigOf,
        dependencies: PartitionDependencies,
    ) -> None:
        # Called with (topic, its id, partition, replicas) for a replica here that this broker cannot serve.
        self.on_unservable: Callable[[str, UUID, int, tuple[int, ...]], None] | None = None
        self._broker_id = broker_id
        self._dependencies = dependencies
        self._directories = list(directories)
        self._config_of = config_of
        self._partitions: dict[PartitionKey, Partition] = {}
        self._image = ClusterImage()
        # Logs that may belong to this topic or to another one of its name: an operator must look.
        self._damaged: set[PartitionKey] = set()
        # Replicas that left the assignment, and the leader epoch then: the election that belongs to it may come later.
        self._leaving: dict[PartitionKey, int] = {}
        # Logs that were strays and are back. They lost their high watermark, so they lead only in a new leader epoch.
        self._returned: set[PartitionKey] = set()
        # Whether the image is known to be newer than the one before, and not restored by an operator.
        self._is_newer = False
        # Made for an image that is not shown yet.
        self._made_ahead: list[tuple[LogDirectory, Log]] = []
        # Replicas without a log because the disk was full; none of them has any records yet.
        self._unmade: dict[PartitionKey, None] = {}
        # Replicas, by topic id, that an unusable directory may hold since the start: they are not new.
        self._unreachable: set[tuple[UUID, int]] | None = None

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def traffic(self) -> BrokerTraffic:
        """What clients and followers moved, by topic."""
        return self._dependencies.traffic

    def get(self, topic: str, partition: int) -> Partition | None:
        """The partition, if this broker has a replica of it; otherwise None."""
        return self._partitions.get((topic, partition))

    def find(self, topic: str, partition: int) -> Partition:
        """The partition; raises the `ApiError` that tells a client why it is not here."""
        found = self._partitions.get((topic, partition))
        if found is not None:
            return found
        known = self._image.partition(topic, partition)
        if known is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self._broker_id in known.replicas and known.partition_epoch >= 0:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition} is offline on this broker")
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def apply(self, old: ClusterImage, new: ClusterImage) -> None:
        """Brings the partitions on this broker from one image to the next."""
        self._image = new
        self._is_newer = new.reading == old.reading
        if self._unreachable is None:
            self._unreachable = self._out_of_reach(new)
        self._delete_made_in_vain(new)
        for name, topic in old.topics.items():
            kept = new.topics.get(name)
            if kept is not None and kept.topic_id == topic.topic_id:
                continue  # also after an operator restored the topic node, for example from a copy of the store
            if new.is_deletion_requested(topic.topic_id):
                self._delete(topic)
            elif kept is None and name in new.topic_faults:
                self._let_go(topic)
            else:
                self._set_aside(topic, kept)
        for name, topic in new.topics.items():
            if old.topics.get(name) is not topic:
                self._update(topic)
        if new.topics is not old.topics:
            self._dependencies.traffic.keep_only(new.topics)
        if new.brokers is not old.brokers:
            self.shrink_isrs()
            self._give_up_again()

    def _give_up_again(self) -> None:
        """Resigns again from replicas on failed disks: a broker that returned may take them over."""
        for partition in self:
            if not partition.is_open:
                self._report_unservable(partition)

    def _out_of_reach(self, image: ClusterImage) -> set[tuple[UUID, int]]:
        """Replicas assigned to this broker before it started, some of them in directories that cannot be read."""
        if all(directory.offline_reason is None for directory in self._directories):
            return set()
        return {
            (topic.topic_id, partition.partition)
            for topic in image.topics.values()
            for partition in topic.partitions
            if self._broker_id in partition.replicas
        }

    async def make_logs(self, new: ClusterImage, goes_on: Callable[[], bool]) -> None:
        """Makes the logs that `apply` will need, or brings them back if they are strays.

        `apply` tries again, and reports, where that failed.
        """
        await self._bring_back(new, goes_on)
        planned = self._planned_logs(new)
        for directory, logs in planned.items():
            for start in range(0, len(logs), _LOGS_AT_ONCE):
                if not goes_on():
                    return
                begin = directory.create_many(logs[start : start + _LOGS_AT_ONCE])
                adopt = await asyncio.get_running_loop().run_in_executor(None, begin)
                adopt()
                made = (directory.logs.get(key) for key, _, _ in logs[start : start + _LOGS_AT_ONCE])
                self._made_ahead += [(directory, log) for log in made if log is not None]

    async def _bring_back(self, new: ClusterImage, goes_on: Callable[[], bool]) -> None:
        """Brings back the strays of partitions that are this broker's again, for example after a restored store."""
        for directory in self._directories:
            for stray in directory.strays:
                if not goes_on():
                    return
                if directory.offline_reason is not None:
                    break
                key = stray.key
                image = self._assigned(key, stray.topic_id, new) if key is not None else None
                if key is None or image is None or not self._lacks_log(key[0], image):
                    continue
                look = directory.bring_back(stray, key, self._config_of(new, key[0]))
                adopt = await asyncio.get_running_loop().run_in_executor(None, look)
                adopt()
                if key in directory.logs:
                    self._returned.add(key)

    def _assigned(
        self, key: PartitionKey, topic_id: UUID | None, image: ClusterImage
    ) -> PartitionImage | None:
        """The partition, if an image has it with this topic id and a replica here. It may have no state yet."""
        topic, partition = image.topics.get(key[0]), image.partition(*key)
        if topic is None or topic.topic_id != topic_id or partition is None:
            return None
        return partition if self._broker_id in partition.replicas else None

    def _delete_made_in_vain(self, image: ClusterImage) -> None:
        """Deletes logs that were made for an image that was never shown, unless this image needs them."""
        for directory, log in self._made_ahead:
            key = log.topic, log.partition
            if self._assigned(key, log.topic_id, image) is None and directory.logs.get(key) is log:
                _report_failure(directory.delete, key)
        self._made_ahead.clear()

    def _planned_logs(
        self, new: ClusterImage
    ) -> dict[LogDirectory, list[tuple[PartitionKey, TopicConfig, UUID]]]:
        if any(directory.offline_reason is not None for directory in self._directories):
            # The log may exist in an unusable directory: `apply` decides.
            return {}
        planned: dict[LogDirectory, list[tuple[PartitionKey, TopicConfig, UUID]]] = {
            directory: [] for directory in self._directories
        }
        changed = [topic for name, topic in new.topics.items() if self._image.topics.get(name) is not topic]
        for topic in changed:
            missing = [
                image
                for image in topic.partitions
                if self._lacks_log(topic.name, image) and self._with_stray(topic, image) is None
            ]
            if len(missing) < _MANY_LOGS:
                continue
            config = self._config_of(new, topic.name)
            for image in missing:
                directory = min(planned, key=lambda found: len(found.logs) + len(planned[found]))
                planned[directory].append(((topic.name, image.partition), config, topic.topic_id))
        return planned

    def _lacks_log(self, topic: str, image: PartitionImage) -> bool:
        key = topic, image.partition
        return (
            self._broker_id in image.replicas
            and image.partition_epoch >= 0
            and key not in self._partitions
            and not self._having(key)
        )

    def _having(self, key: PartitionKey) -> list[LogDirectory]:
        """The directories that have a log of this name, also one that could not be loaded."""
        return [found for found in self._directories if key in found.logs or key in found.failed]

    def _with_stray(self, topic: TopicImage, image: PartitionImage) -> LogDirectory | None:
        """The directory that has the partition's log as a stray."""
        key = topic.name, image.partition
        having = (one for one in self._directories if one.strays.of(key, topic.topic_id) is not None)
        return next(having, None)

    def offline(self) -> dict[str, tuple[int, ...]]:
        """The partitions, by topic, whose replicas here cannot be served because of the disks."""
        keys = {key for key, partition in self._partitions.items() if not partition.is_open}
        keys.update(*(directory.failed for directory in self._directories))
        keys |= self._unmade.keys()
        if self._unreachable:
            named = (
                (self._image.topic_names.get(topic_id), number) for topic_id, number in self._unreachable
            )
            keys |= {(name, number) for name, number in named if name is not None} - self._partitions.keys()
        found: dict[str, tuple[int, ...]] = {}
        for topic, number in sorted(keys):
            image = self._image.partition(topic, number)
            if image is not None and self._broker_id in image.replicas:
                found[topic] = (*found.get(topic, ()), number)
        return found

    def goes_back(self, new: ClusterImage) -> bool:
        """Whether a changed topic has a leader epoch before one that this broker knows; see `outdated`."""
        changed = [topic for name, topic in new.topics.items() if self._image.topics.get(name) is not topic]
        return next(self.outdated(changed), None) is not None

    def outdated(self, topics: Iterable[TopicImage]) -> Iterator[tuple[PartitionKey, int]]:
        """The partitions that need a new leader epoch here, and the epoch that it must exceed.

        An operator restored an older state of the store, or a topic's node without the states of its partitions: the
        store's epoch is before the latest that this broker knows. Or this broker leads with a log that was a stray.
        """
        for topic in topics:
            for image in topic.partitions:
                if self._broker_id in image.replicas and image.partition_epoch >= 0:
                    key = topic.name, image.partition
                    latest = self._latest_epoch(key, topic.topic_id)
                    if image.leader_epoch < latest or self._leads_returned(key, image):
                        yield key, max(latest, image.leader_epoch)

    def _leads_returned(self, key: PartitionKey, image: PartitionImage) -> bool:
        return key in self._returned and image.leader == self._broker_id

    def _latest_epoch(self, key: PartitionKey, topic_id: UUID) -> int:
        partition = self._partitions.get(key)
        if partition is not None:
            is_same = partition.topic_id == topic_id
            return max(partition.leader_epoch, partition.log.epochs.latest) if is_same else -1
        logs = (directory.logs.get(key) for directory in self._directories)
        return max(
            (log.epochs.latest for log in logs if log is not None and log.topic_id == topic_id), default=-1
        )

    def shrink_isrs(self) -> None:
        """Checks the ISRs of the partitions led here, after brokers returned or fell behind."""
        for partition in self:
            partition.shrink_isr()

    def high_watermarks(self, directory: LogDirectory) -> dict[PartitionKey, int]:
        """The high watermarks of the partitions in one directory, for its checkpoint.

        Logs that are offline are left out, so that the checkpoint keeps the last value before the failure: when the log
        is opened again without its end, this value shows that the file must be lowered first (R6).
        """
        return {
            key: partition.high_watermark
            for key, partition in self._partitions.items()
            if directory.logs.get(key) is partition.log and partition.log.offline_reason is None
        }

    def on_directory_offline(self, directory: LogDirectory) -> None:
        """Stops serving the directory's partitions; other brokers take over where they can."""
        for key, partition in list(self._partitions.items()):
            if directory.logs.get(key) is partition.log:
                self._go_offline(partition)

    def on_log_offline(self, log: ReadableLog) -> None:
        """As `on_directory_offline`, for a single log."""
        key = log.topic, log.partition
        partition = self._partitions.get(key)
        if partition is not None and partition.log is log:
            self._go_offline(partition)

    def _go_offline(self, partition: Partition) -> None:
        if partition.is_open:
            partition.close(ErrorCode.KAFKA_STORAGE_ERROR)
            self._report_unservable(partition)

    def _report_unservable(self, partition: Partition) -> None:
        if self.on_unservable is not None:
            self.on_unservable(partition.topic, partition.topic_id, partition.partition, partition.replicas)

    def without_room(self) -> list[PartitionKey]:
        """Partitions to retry: their logs went offline on a full disk, or are back without a role; also the first of
        those whose log was never made.
        """
        held = [
            key
            for key, partition in self._partitions.items()
            if partition.log.lacks_room or _has_no_role(partition)
        ]
        return held + list(self._unmade)[:1]

    async def retry_log(self, key: PartitionKey, is_free: Callable[[Log], bool]) -> bool:
        """Tries to reopen one of these logs; True if it is back, for `take_up`.

        No image may be applied meanwhile. `is_free` tells whether no other component works on a log's files.
        """
        partition = self._partitions.get(key)
        if key in self._unmade:
            await self._bring_back(self._image, lambda: True)
            return True
        if partition is not None and _has_no_role(partition):
            return True
        # The partition, not the log, is asked: a log does not hear of a flush that ends after it was closed.
        if partition is None or partition.flusher.is_running or not is_free(partition.log):
            return False
        log = partition.log
        directory = next((found for found in self._directories if found.logs.get(key) is log), None)
        if directory is None or directory.offline_reason is not None or not log.lacks_room:
            return False
        look = directory.reopen(key)
        adopt = await asyncio.get_running_loop().run_in_executor(None, look)
        reopened = adopt()
        if reopened is None or self._partitions.get(key) is not partition:
            return False
        self._partitions[key] = Partition(
            self._broker_id, reopened, partition.topic_id, self._dependencies, partition.high_watermark
        )
        return True

    def needs_epoch(self) -> bool:
        """Whether `take_up` would lead with a log that was a stray: this broker must join again before.

        `retry_log` may have brought back several logs, and `take_up` takes all of them up.
        """
        images = ((key, self._image.partition(*key)) for key in self._unmade)
        return any(image is not None and self._leads_returned(key, image) for key, image in images)

    def take_up(self, key: PartitionKey) -> None:
        """Gives a reopened partition the role that the image has for it."""
        if key in self._unmade:
            self._make_unmade()
        topic, image = self._image.topics.get(key[0]), self._image.partition(*key)
        if topic is not None and image is not None and key in self._partitions:
            self._update_partition(topic, image)

    def _make_unmade(self) -> None:
        """Makes as many of the missing logs as there is room for. Those that are strays need no room."""
        for key in list(self._unmade):
            topic, image = self._image.topics.get(key[0]), self._image.partition(*key)
            if topic is None or image is None or self._broker_id not in image.replicas:
                del self._unmade[key]
                continue
            self._update_partition(topic, image)
            if key in self._unmade and self._with_stray(topic, image) is None:
                return

    def set_strays_aside(self) -> None:
        """Deletes the logs of topics whose deletion was requested while this broker was away.

        Sets aside other logs without a place in the image: of topics or replicas that the store does not know.
        """
        for directory in self._directories:
            for key, log in list(directory.logs.items()):
                is_kept = key in self._damaged or key[0] in self._image.topic_faults
                is_assigned = self._assigned(key, log.topic_id, self._image) is not None
                if key not in self._partitions and not is_kept and not is_assigned:
                    self._leaving.pop(key, None)
                    self._remove(directory, key, log.topic_id, self._why_not_here(key[0]))

    def delete_requested(self, topics: Collection[UUID]) -> bool:
        """Deletes what is left of topics whose deletion was requested; returns whether nothing is left here.

        Something may be left in a directory that is offline. A log that could not be loaded is left if nothing tells
        whose it is: neither its own files, nor a topic of the image.
        """
        if any(directory.offline_reason is not None for directory in self._directories):
            return False
        for directory in self._directories:
            directory.delete_strays(topics.__contains__)
            for key, topic_id in directory.topic_ids():
                if topic_id in topics and key not in self._partitions:
                    _report_failure(directory.delete, key)
        return not any(
            topic_id in topics or (key in directory.failed and self._may_be_of_any_topic(key, topic_id))
            for directory in self._directories
            for key, topic_id in directory.topic_ids()
        )

    def _may_be_of_any_topic(self, key: PartitionKey, topic_id: UUID | None) -> bool:
        return topic_id is None and self._image.partition(*key) is None

    def _remove(self, directory: LogDirectory, key: PartitionKey, topic_id: UUID | None, reason: str) -> None:
        """Deletes a log if the deletion of its topic was requested, and sets it aside otherwise."""
        if topic_id is not None and self._image.is_deletion_requested(topic_id):
            _report_failure(directory.delete, key)
        else:
            _report_failure(partial(directory.set_aside_as_stray, reason=reason), key)

    def _why_not_here(self, topic: str) -> str:
        if topic in self._image.topics:
            return f"the topic has no replica of this partition on broker {self._broker_id}"
        return "the cluster's metadata has no such topic"

    def reconfigure(self, image: ClusterImage, topics: Iterable[str] | None = None) -> None:
        """Applies the topics' configuration to their logs; `None` means every topic."""
        wanted = None if topics is None else set(topics)
        configs: dict[str, TopicConfig] = {}
        for partition in self:
            name = partition.topic
            if wanted is None or name in wanted:
                if name not in configs:
                    configs[name] = self._config_of(image, name)
                partition.log.update_config(configs[name])
                partition.on_config_change()

    def _update(self, topic: TopicImage) -> None:
        for image in topic.partitions:
            if self._broker_id not in image.replicas:
                # Logs from before the start are left to `set_strays_aside`.
                self._leave((topic.name, image.partition), topic.topic_id, image)
            elif image.partition_epoch >= 0:
                self._leaving.pop((topic.name, image.partition), None)
                self._update_partition(topic, image)

    def _leave(self, key: PartitionKey, topic_id: UUID, image: PartitionImage) -> None:
        """This broker is no replica in the image. A reassignment also took it out of the ISR, in a new leader epoch.

        An older assignment that an operator restored shows no such election, or is not known to be newer.
        """
        partition = self._partitions.pop(key, None)
        if partition is not None:
            partition.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._leaving[key] = partition.leader_epoch
        self._unmade.pop(key, None)
        if key not in self._leaving:
            return
        if not self._is_newer:
            del self._leaving[key]
            reason = (
                f"the store was read again, and has no replica of this partition on broker {self._broker_id}"
            )
            for directory in self._having(key):
                self._remove(directory, key, topic_id, reason)
        elif image.leader_epoch > self._leaving[key] and self._broker_id not in image.isr:
            self._delete_partition(key, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _update_partition(self, topic: TopicImage, image: PartitionImage) -> None:
        partition = self._partitions.get((topic.name, image.partition)) or self._make(topic, image)
        if partition is not None and partition.image is not image:
            _take_role(partition, image)
        if (partition is None or not partition.is_open) and self.on_unservable is not None:
            self.on_unservable(topic.name, topic.topic_id, image.partition, image.replicas)

    def _make(self, topic: TopicImage, image: PartitionImage) -> Partition | None:
        key = (topic.name, image.partition)
        try:
            log = self._existing_log(key, topic.topic_id) or self._new_log(topic, image)
        except (ApiError, LogDirectoryError) as error:
            self._report_unmade(key, error)
            return None
        self._unmade.pop(key, None)
        self._returned.discard(key)
        partition = Partition(
            self._broker_id, log, topic.topic_id, self._dependencies, self._checkpointed(key)
        )
        self._partitions[key] = partition
        return partition

    def _report_unmade(self, key: PartitionKey, error: ApiError | LogDirectoryError) -> None:
        """The partition answers KAFKA_STORAGE_ERROR; the others are served."""
        was_known = key in self._unmade
        self._unmade.pop(key, None)
        if isinstance(error, LogDirectoryError) and error.is_passing:
            self._unmade[key] = None
            if was_known:
                return
        _log.error("partition is offline", extra={"partition": f"{key[0]}-{key[1]}", "reason": str(error)})

    def _checkpointed(self, key: PartitionKey) -> int:
        return max(
            (directory.checkpoints.high_watermarks.get(key, 0) for directory in self._directories), default=0
        )

    def _existing_log(self, key: PartitionKey, topic_id: UUID) -> Log | None:
        found = [(directory, directory.logs[key]) for directory in self._directories if key in directory.logs]
        # Two copies are left by a move between directories that a crash interrupted; later appends went to the longer.
        own = [log for _, log in found if log.topic_id == topic_id]
        kept = max(own, key=lambda log: log.log_end_offset, default=None)
        for directory, log in found:
            if kept is None and partition_metadata.looks_damaged(log.topic_id, topic_id):
                self._damaged.add(key)
                raise LogDirectoryError(
                    directory.path,
                    f"has {log.name} of topic id {log.topic_id}, one character away from {topic_id}: "
                    f"its {partition_metadata.FILE_NAME} is damaged",
                )
            if log is not kept:
                self._remove(directory, key, log.topic_id, _why_not(log, kept, topic_id))
        return kept

    def _new_log(self, topic: TopicImage, image: PartitionImage) -> Log:
        if (having := self._with_stray(topic, image)) is not None:
            raise StrayComesBack(having.path, "has the log as a stray")
        for directory in self._directories:
            if reason := directory.failed.get((topic.name, image.partition)):
                # The records are here, though damaged: a new log on another disk would hide them.
                raise LogDirectoryError(directory.path, f"has the partition, but could not load it: {reason}")
        if self._unreachable and (topic.topic_id, image.partition) in self._unreachable:
            dead = next(directory for directory in self._directories if directory.offline_reason is not None)
            raise LogDirectoryError(dead.path, "could not be used at the start, and may hold the partition")
        online = [directory for directory in self._directories if directory.offline_reason is None]
        directory = min(online or self._directories, key=lambda directory: len(directory.logs))
        config = self._config_of(self._image, topic.name)
        return directory.create(topic.name, image.partition, config, topic.topic_id)

    def _delete(self, topic: TopicImage) -> None:
        for image in topic.partitions:
            self._delete_partition((topic.name, image.partition), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _let_go(self, topic: TopicImage) -> None:
        """The topic's node cannot be read: its partitions are not served, and nothing is deleted, until an operator
        repairs the node.
        """
        for image in topic.partitions:
            partition = self._partitions.pop((topic.name, image.partition), None)
            if partition is not None:
                partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _set_aside(self, topic: TopicImage, other: TopicImage | None) -> None:
        """The topic is gone or has another id, by hand or in a restored store. Its logs are kept for its return."""
        if other is None:
            reason = f"topic {topic.topic_id} is not in the store, and there is no record of its deletion"
        else:
            reason = (
                f"the topic's id was {topic.topic_id} and is {other.topic_id}, without a record of a deletion"
            )
        _log.error(
            "a topic disappeared although its deletion was not requested: its logs are set aside as strays",
            extra={"topic": topic.name, "reason": reason},
        )
        self._let_go(topic)
        for image in topic.partitions:
            key = topic.name, image.partition
            self._leaving.pop(key, None)
            self._unmade.pop(key, None)
            for directory in self._having(key):
                _report_failure(partial(directory.set_aside_as_stray, reason=reason), key)

    def _delete_partition(self, key: PartitionKey, reason: ErrorCode) -> None:
        self._unmade.pop(key, None)
        self._leaving.pop(key, None)
        partition = self._partitions.pop(key, None)
        if partition is not None:
            partition.close(reason)
        for directory in self._having(key):
            _report_failure(directory.delete, key)


def _why_not(log: Log, kept: Log | None, topic_id: UUID) -> str:
    """Why a log with the name of a partition is not used for it."""
    if log.topic_id is None:
        return f"it has no {partition_metadata.FILE_NAME}, which would tell whose topic's it is"
    if log.topic_id != topic_id or kept is None:
        return f"its topic id is {log.topic_id}, the topic's is {topic_id}"
    return f"{kept.directory} holds the same partition up to offset {kept.log_end_offset}"


def _has_no_role(partition: Partition) -> bool:
    """The log was reopened, and no image has been applied since."""
    return partition.is_open and not partition.replicas


def _take_role(partition: Partition, image: PartitionImage) -> None:
    """Applies the image's role. A log that cannot be truncated or led fails its own partition only."""
    try:
        if partition.is_open and partition.log.offline_reason is not None:
            partition.close(ErrorCode.KAFKA_STORAGE_ERROR)  # it led before this broker lost its session
        partition.update_role(image)
    except BrokenInvariant:
        pass  # it has stopped the partition, and is reported
    except (ApiError, OSError) as error:
        _log.error("partition is offline", extra={"partition": partition.log.name, "reason": str(error)})
        partition.close(ErrorCode.KAFKA_STORAGE_ERROR)


def _report_failure(act: Callable[[str, int], None], key: PartitionKey) -> None:
    """Runs a deletion; an error takes only the directory offline, and applying the image goes on."""
    try:
        act(*key)
    except LogDirectoryError as error:
        _log.error(
            "a partition's files stay", extra={"partition": f"{key[0]}-{key[1]}", "reason": str(error)}
        )
