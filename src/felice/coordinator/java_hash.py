"""Java's hash of a string: it determines Kafka's placement of groups and transactional ids. Pure."""

from __future__ import annotations


def java_string_hash(text: str) -> int:
    """`String.hashCode`: over UTF-16 units, in 32 bits that wrap around."""
    units = text.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for position in range(0, len(units), 2):
        hashed = (31 * hashed + int.from_bytes(units[position : position + 2])) & 0xFFFFFFFF
    return hashed - (1 << 32) if hashed >= 1 << 31 else hashed


def partition_for(key: str, partition_count: int) -> int:
    """Java's `Utils.abs(hash) % count`, whose abs of the smallest integer is 0."""
    hashed = java_string_hash(key)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partition_count
