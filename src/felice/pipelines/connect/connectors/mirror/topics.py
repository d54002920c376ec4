"""Which topics are mirrored, and how the target's copies get their partitions, options and access rules.

Keeps true:  nothing is taken away from a topic of the target: a partition, a topic or a rule stays when the source has
             it no more.
             Nobody gets the right to write into a mirrored topic from a rule of the source.
Source:      Kafka's `MirrorSourceConnector`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from felice.client.admin.acls import AclBinding, AclBindingFilter
from felice.client.admin.enumerations import (
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigSource,
    ResourcePatternType,
    ResourceType,
)
from felice.client.admin.model import ConfigEntry, ConfigResource, NewPartitions, NewTopic
from felice.client.error import KafkaError, KafkaException
from felice.pipelines.connect.connector.contexts import TopicPartition
from felice.pipelines.connect.connectors.mirror.clusters import SOURCE, TARGET, Clusters, code_of
from felice.pipelines.connect.connectors.mirror.options import TOPICS, TOPICS_EXCLUDE, Chosen, matching

_log = logging.getLogger("felice.connect.mirror")
_OF_TOPIC = (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_TOPIC_CONFIG.value)


class TopicMirror:
    """The topics of a source cluster that a target cluster has, too."""

    def __init__(self, clusters: Clusters, values: Mapping[str, Any]) -> None:
        self._clusters = clusters
        self._names = clusters.names
        self._chosen = Chosen(values[TOPICS], values[TOPICS_EXCLUDE])
        self._has_heartbeats: bool = values["heartbeats.replication.enabled"]
        self._replicas: int = values["replication.factor"]
        self._excluded_configs = matching(values["config.properties.exclude"])
        self._takes_defaults: bool = values["use.defaults.from"] == SOURCE
        self._known: dict[str, int] = {}
        self._has_rules = True

    @property
    def partitions(self) -> list[TopicPartition]:
        """All partitions to mirror, as `look` found them."""
        return [(topic, number) for topic, count in sorted(self._known.items()) for number in range(count)]

    def has(self, topic: str) -> bool:
        """Whether a topic of the source is mirrored."""
        is_chosen = self._chosen.has(topic) or (self._has_heartbeats and self._names.is_heartbeats(topic))
        return (
            is_chosen
            and not self._names.is_internal(topic)
            and self._clusters.target_alias not in self._names.path(topic)
        )

    def remote(self, topic: str) -> str:
        """The name of a topic of the source in the target."""
        return self._names.remote(self._clusters.source_alias, topic)

    def look(self) -> bool:
        """Looks for topics, and gives the target what it lacks. Whether the partitions to mirror have changed."""
        found = {name: count for name, count in self._clusters.topics(SOURCE).items() if self.has(name)}
        if not found:
            _log.warning("no topic of %s matches the patterns of %s", self._clusters.source_alias, TOPICS)
        there = self._clusters.topics(TARGET)
        ready = dict(found)
        new = [name for name in found if self.remote(name) not in there]
        for name in self._create({name: found[name] for name in new}):
            del ready[name]
        grown = {name: found[name] for name in found if 0 < there.get(self.remote(name), 0) < found[name]}
        for name in self._grow(grown):
            ready[name] = there[self.remote(name)]
        before, self._known = self._known, ready
        return self._known != before

    def _create(self, topics: Mapping[str, int]) -> list[str]:
        """Creates mirrors. Returns the topics that could not get one."""
        if not topics:
            return []
        configs = self._configs(topics)
        wanted = {
            name: NewTopic(
                self.remote(name),
                count,
                self._replicas,
                config={entry.name: entry.value or "" for entry in self._to_set(configs.get(name, {}))},
            )
            for name, count in topics.items()
        }
        asked = self._clusters.admin(TARGET).create_topics(list(wanted.values()))
        failed = []
        for name, made in wanted.items():
            try:
                asked[made.topic].result()
            except KafkaException as error:
                if code_of(error) == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue
                _log.error("the topic %s cannot be created: %s", made.topic, error.error.str())
                failed.append(name)
            else:
                _log.info("the topic %s is created with %d partitions", made.topic, made.num_partitions)
        return failed

    def _grow(self, topics: Mapping[str, int]) -> list[str]:
        """Adds partitions to mirrors. Returns the topics whose mirrors could not get them."""
        if not topics:
            return []
        wanted = [NewPartitions(self.remote(name), count) for name, count in topics.items()]
        asked = self._clusters.admin(TARGET).create_partitions(wanted)
        return [
            name
            for name, made in zip(topics, wanted, strict=True)
            if not self._clusters.is_answered(
                asked[made.topic], f"the topic {made.topic} cannot get partitions"
            )
        ]

    # Options

    def sync_configs(self) -> None:
        """Gives mirrors the options of their topics."""
        configs = self._configs(self._known)
        if not configs:
            return
        wanted = [
            ConfigResource(ResourceType.TOPIC, self.remote(name), incremental_configs=self._changes(entries))
            for name, entries in configs.items()
        ]
        asked = self._clusters.admin(TARGET).incremental_alter_configs(wanted)
        for resource, done in asked.items():
            self._clusters.is_answered(done, f"cannot set options of the topic {resource.name}")

    def _configs(self, topics: Iterable[str]) -> dict[str, dict[str, ConfigEntry]]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        if not resources:
            return {}
        asked = self._clusters.admin(SOURCE).describe_configs(resources)
        return {
            resource.name: done.result()
            for resource, done in asked.items()
            if self._clusters.is_answered(done, f"cannot read options of the topic {resource.name}")
        }

    def _to_set(self, entries: Mapping[str, ConfigEntry]) -> list[ConfigEntry]:
        return [
            entry
            for entry in entries.values()
            if (self._takes_defaults or entry.source in _OF_TOPIC)
            and not entry.is_read_only
            and not self._excluded_configs.fullmatch(entry.name)
        ]

    def _changes(self, entries: Mapping[str, ConfigEntry]) -> list[ConfigEntry]:
        """What the source sets is set, and what it does not set gets the target's default again."""
        sets = {entry.name for entry in self._to_set(entries)}
        return [
            ConfigEntry(
                entry.name,
                entry.value if entry.name in sets else None,
                incremental_operation=AlterConfigOpType.SET
                if entry.name in sets
                else AlterConfigOpType.DELETE,
            )
            for entry in entries.values()
            if not entry.is_read_only and not self._excluded_configs.fullmatch(entry.name)
        ]

    # Access rules

    def sync_acls(self) -> None:
        """Gives the target the rules of mirrored topics, but none to write. Raises `ConnectError`, `KafkaException`."""
        if not self._has_rules:
            return
        any_topic = AclBindingFilter(
            ResourceType.TOPIC,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        try:
            found = self._clusters.admin(SOURCE).describe_acls(any_topic).result()
        except KafkaException as error:
            if code_of(error) != KafkaError.SECURITY_DISABLED:
                raise
            _log.info("%s has no authorizer: there are no rules to mirror", self._clusters.source_alias)
            self._has_rules = False
            return
        wanted = [mirrored for rule in found if (mirrored := self._mirrored(rule)) is not None]
        if wanted:
            for rule, done in self._clusters.admin(TARGET).create_acls(list(dict.fromkeys(wanted))).items():
                self._clusters.answer(done, f"cannot set a rule of the topic {rule.name}")

    def _mirrored(self, rule: AclBinding) -> AclBinding | None:
        """The rule for the mirror: reading stays allowed, all becomes reading, and writing is left out.

        A rule for all topics with a prefix is not mirrored: it can hold for topics that are not.
        """
        name = rule.name or ""
        if rule.resource_pattern_type is not ResourcePatternType.LITERAL or name not in self._known:
            return None
        operation = rule.operation
        if rule.permission_type is AclPermissionType.ALLOW:
            if operation is AclOperation.WRITE:
                return None
            if operation is AclOperation.ALL:
                operation = AclOperation.READ
        return replace(rule, name=self.remote(name), operation=operation)
