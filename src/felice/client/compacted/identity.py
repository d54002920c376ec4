"""Tells whether the topic is still the one that was read: its id must stay, and it must not be missing for long. Pure.

Keeps true:  A topic with another id is another topic, at once. A topic that the metadata lacks counts as deleted after
             `MISSING_S` seconds: a broker that has just started may not know it yet.
"""

from __future__ import annotations

import uuid

from felice.client.net.topology import Topology
from felice.protocol.errors import ErrorCode
from felice.protocol.primitives import ZERO_UUID

MISSING_S = 10.0


class TopicIdentity:
    """The topic as it was at the start. `topic_id` is all zeros if brokers have no ids; then only its absence shows."""

    def __init__(self, name: str, topic_id: uuid.UUID) -> None:
        self.name = name
        self._topic_id = topic_id
        self._missing_since: float | None = None

    def fault(self, topology: Topology, now: float) -> str | None:
        """Return why the topic is no longer the same, after a refresh of the metadata at time `now`; None if it is."""
        found = topology.topic_id(self.name)
        if self._topic_id != ZERO_UUID and found not in (ZERO_UUID, self._topic_id):
            return f"topic {self.name!r} was deleted and created again: its id changed"
        if topology.topic_errors.get(self.name) != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._missing_since = None
            return None
        if self._missing_since is None:
            self._missing_since = now
        if now - self._missing_since >= MISSING_S:
            return f"topic {self.name!r} was deleted"
        return None
