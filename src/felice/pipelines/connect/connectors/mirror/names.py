"""The names of mirrored topics, and of the topics in which mirrors keep their own records.

Keeps true:  a topic that came from a cluster is never mirrored back to it, over any number of clusters, as long as
             names have prefixes. Without them nothing shows where a topic came from: mirror in one direction only.
Source:      Kafka's `DefaultReplicationPolicy` and `IdentityReplicationPolicy`.
"""

from __future__ import annotations

from collections.abc import Iterator

HEARTBEATS = "heartbeats"
_INTERNAL = "internal"
_MIRROR = "mm2"


class Names:
    """How mirrored topics are called. `remote` may be asked for any topic."""

    def __init__(
        self, separator: str = ".", *, prefixes: bool = True, separates_internal: bool = True
    ) -> None:
        """`separator` stands between the alias of the source cluster and the topic: `A.orders`.

        Without `prefixes` a mirrored topic keeps its name, and only heartbeats get an alias. `separates_internal`: the
        mirrors' own topics have the separator in their names, too (KIP-949).
        """
        self._separator = separator
        self._prefixes = prefixes
        self._internal = separator if separates_internal else "."

    def remote(self, alias: str, topic: str) -> str:
        """The name in the target cluster of a topic of the cluster `alias`."""
        return f"{alias}{self._separator}{topic}" if self._has_prefix(topic) else topic

    def path(self, topic: str) -> Iterator[str]:
        """The aliases of all clusters through which a topic came, the nearest first, as far as its name shows them."""
        while self._has_prefix(topic):
            alias, separator, topic = topic.partition(self._separator)
            if not separator:
                return
            yield alias

    def is_heartbeats(self, topic: str) -> bool:
        """Whether a topic has heartbeats, of its own cluster or mirrored ones."""
        return topic.rpartition(self._separator)[2] == HEARTBEATS

    def is_internal(self, topic: str) -> bool:
        """Whether a topic is one of Kafka's own, or one that only mirrors read and write."""
        suffix = self._internal + _INTERNAL
        is_kafkas = topic.startswith(("__", "."))
        is_mirrors = topic.startswith(_MIRROR) and topic.endswith(suffix)
        return is_kafkas or is_mirrors or topic.endswith("checkpoints" + suffix)

    def offset_syncs(self, alias: str) -> str:
        """The topic of offset syncs with the cluster `alias`."""
        return f"{_MIRROR}-offset-syncs{self._internal}{alias}{self._internal}{_INTERNAL}"

    def checkpoints(self, alias: str) -> str:
        """The topic of checkpoints of groups of the cluster `alias`."""
        return f"{alias}{self._internal}checkpoints{self._internal}{_INTERNAL}"

    def _has_prefix(self, topic: str) -> bool:
        return self._prefixes or topic.endswith(HEARTBEATS)
