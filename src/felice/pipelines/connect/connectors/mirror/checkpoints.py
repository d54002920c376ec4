"""Checkpoints: finds the groups of the source cluster, and divides them among tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import ClassVar

from felice.pipelines.connect.connectors.mirror.connector import LookingConnector, interval_of
from felice.pipelines.connect.connectors.mirror.options import (
    ASSIGNED_GROUPS,
    CHECKPOINTS,
    GROUPS,
    GROUPS_EXCLUDE,
    Chosen,
)
from felice.pipelines.connect.connectors.mirror.places import divided

_CONSUMERS = ("consumer", "")
"""The protocol types of groups that have offsets: of consumers, and of those that only commit."""


class MirrorCheckpoint(LookingConnector):
    """Writes down in the target where groups of the source can read on, and moves idle groups there."""

    java_class: ClassVar = "org.apache.kafka.connect.mirror.MirrorCheckpointConnector"
    definitions: ClassVar = CHECKPOINTS
    task: ClassVar = "felice.pipelines.connect.connectors.mirror.checkpoint_task:MirrorCheckpointTask"

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> bool | None:
        """Yes: a checkpoint that is repeated is the same."""
        return True

    def start(self, config: Mapping[str, str]) -> None:
        """Looks for groups, and begins to look for others. What fails is tried again."""
        super().start(config)
        values = CHECKPOINTS.parse(dict(config))
        self._emits: bool = values["enabled"] and values["emit.checkpoints.enabled"]
        if not self._emits:
            return
        self._open(config, values)
        self._chosen = Chosen(values[GROUPS], values[GROUPS_EXCLUDE])
        self._replicas: int = values["checkpoints.topic.replication.factor"]
        self._sync_replicas: int = values["offset-syncs.topic.replication.factor"]
        self._has_topics = False
        self._groups: list[str] = []
        self._begin(interval_of(values, "refresh.groups"))

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """The groups in turns."""
        if not self._emits:
            return []
        # As JSON: the name of a group can have any character.
        shares = divided(self._groups, max_tasks)
        return [{**self.config, ASSIGNED_GROUPS: json.dumps(share)} for share in shares]

    def _look(self) -> bool:
        """Whether the groups have changed."""
        from felice.pipelines.connect.connectors.mirror.clusters import SOURCE, TARGET

        clusters = self._clusters
        if not self._has_topics:
            clusters.create_own(TARGET, clusters.names.checkpoints(clusters.source_alias), self._replicas)
            clusters.create_own(*clusters.syncs, self._sync_replicas)
            self._has_topics = True
        what = f"cannot list the groups of {clusters.source_alias}"
        found = clusters.answer(clusters.admin(SOURCE).list_consumer_groups(), what)
        names = sorted(
            one.group_id
            for one in found.valid
            if one.protocol_type in _CONSUMERS and self._chosen.has(one.group_id)
        )
        before, self._groups = self._groups, names
        return names != before
