"""The nodes that an image is read from: which of them have children, and which have data.

Keeps true: what is known from the layout is not asked of the store. A partition has one child, its state, and holds
            nothing itself; a state has no children. In a cluster of 200,000 partitions that saves 600,000 reads.
            Nodes that the layout does not know belong to other programs, and are not read.
"""

from __future__ import annotations

from felice.metadata import layout


def fixed_children(path: str) -> tuple[str, ...] | None:
    """Names of the children that a node has by the layout; None where only the store knows them."""
    match path.split("/")[1:]:
        case ["brokers", "topics", _]:
            return ("topic_id", "partitions")
        case ["brokers", "topics", _, "partitions", _]:
            return ("state",)
        case ["brokers", "topics", _, "partitions", _, "state"] | ["brokers", "topics", _, "topic_id", _]:
            return ()
        case ["admin", "deleted_topics", _]:
            return ()
        case ["brokers", "ids", _] | [
            "config",
            "topics" | "brokers" | "ips" | "client-metrics" | "groups",
            _,
        ]:
            return ()
    return None


def has_data(path: str) -> bool:
    """Whether an image needs the content of this node. Some nodes below topics exist only for their children."""
    match path.split("/")[1:]:
        case ["brokers", "topics", _, "topic_id" | "partitions"] | ["brokers", "topics", _, "partitions", _]:
            return False
    return True


def topic_of(path: str) -> str | None:
    """The path of the topic's node at this path or above, or None."""
    parts = path.split("/", 4)
    return "/".join(parts[:4]) if len(parts) > 3 and path.startswith(f"{layout.TOPICS}/") else None


def partition_of(path: str) -> tuple[str, int] | None:
    """The topic and the partition whose state node has this path, or None."""
    match path.split("/")[1:]:
        case ["brokers", "topics", topic, "partitions", partition, "state"] if partition.isdecimal():
            return topic, int(partition)
    return None
