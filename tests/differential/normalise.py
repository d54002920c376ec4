"""Answers without what may differ: identities by the order in which they appear, times by their sign, lists sorted.

One `Normaliser` belongs to one broker and one run: it knows the names that the run chose, and replaces each producer
id, member id and fetch session by a name that is the same for both brokers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from differential.plain import Plain, to_plain
from felice.protocol.primitives import ZERO_UUID
from felice.records.batch import BatchHeader, iter_batches
from felice.records.errors import CorruptBatch, InvalidRecord
from felice.records.reader import read_batch

IGNORED = frozenset(
    {
        "throttle_time_ms",
        "error_message",
        "batch_index_error_message",
        "host",
        "port",
        "rack",
        "cluster_id",
        "client_host",
        "log_dir",
        "total_bytes",
        "usable_bytes",
        "coordinator_epoch",
        "subscription_id",
        "finalized_features_epoch",
        "controller_id",
        "documentation",
    }
)
_TIMES = frozenset({"log_append_time_ms", "last_timestamp", "transaction_start_time_ms", "timestamp"})
_SESSIONS = frozenset({"session_id"})
_PRODUCER_IDS = frozenset({"producer_id"})
_MEMBER_IDS = frozenset({"member_id", "leader"})
_NAMES = frozenset(
    {"group_id", "transactional_id", "name", "topic", "topic_name", "key", "resource_name", "group"}
)
_IDENTIFYING = _NAMES | {
    "topic_id",
    "partition",
    "partition_index",
    "partition_id",
    "index",
    "member_id",
    "offsets",
    "resource_type",
}
UNKNOWN_ID = UUID(int=7)


@dataclass
class Normaliser:
    prefix: str
    topic_names: dict[UUID, str] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    """Texts that the run itself chose."""
    _aliases: dict[tuple[str, Any], str] = field(default_factory=dict)

    def answer(self, message: Any, version: int) -> Plain:
        plain = to_plain(message, version, self._value)
        return self._own_only(_sorted(_without(plain, IGNORED)))

    def learn(self, kind: str, value: Any, owner: str = "") -> None:
        """Gives a name to a producer id or member id that the run received; it is the same name for both brokers."""
        count = sum(known == kind for known, _ in self._aliases)
        self._aliases.setdefault((kind, value), f"{kind} {count + 1} {owner}".strip())

    def alias(self, kind: str, value: Any) -> str:
        return self._aliases.get((kind, value), f"another {kind}")

    def _value(self, name: str, value: Any) -> Plain:
        if isinstance(value, UUID):
            return self._topic_id(value)
        if name in _TIMES:
            return "time" if value > 0 else value
        if name in _SESSIONS:
            return "session" if value else 0
        if name in _PRODUCER_IDS:
            return self.alias("producer", value) if value >= 0 else value
        if name in _MEMBER_IDS and isinstance(value, str):
            return value if not value or value in self.given else self.alias("member", value)
        if name == "records":
            return self.batches(value)
        if isinstance(value, bytes | memoryview):
            return self._text(bytes(value).decode("utf-8", "backslashreplace"))
        return self._text(value) if isinstance(value, str) else value

    def _text(self, value: str) -> str:
        return value.replace(self.prefix, "~")

    def _topic_id(self, value: UUID) -> str:
        if value == ZERO_UUID:
            return "zero"
        if value == UNKNOWN_ID:
            return "unknown id"
        return "id of " + self._text(self.topic_names.get(value, "a topic"))

    def batches(self, records: Any) -> list[Plain]:
        """A partition's batches, as far as they are whole."""
        try:
            return [self._batch(records, header) for header in iter_batches(bytes(records))]
        except (CorruptBatch, InvalidRecord) as error:
            return [f"unreadable: {type(error).__name__}"]

    def _batch(self, records: Any, header: BatchHeader) -> Plain:
        producer = self.alias("producer", header.producer_id) if header.producer_id >= 0 else -1
        return {
            "offsets": [header.base_offset, header.last_offset],
            "attributes": header.attributes,
            "leader_epoch": header.leader_epoch,
            "producer": [producer, header.producer_epoch, header.base_sequence],
            "max_timestamp": "time"
            if header.is_control or header.attributes & 0x08
            else header.max_timestamp,
            "records": [
                [record.offset, _hex(record.key), "marker" if header.is_control else _hex(record.value)]
                for record in read_batch(bytes(records), header)
            ],
        }

    def _own_only(self, plain: Plain) -> Plain:
        """Removes the rows of other runs from answers about everything."""
        if isinstance(plain, dict):
            return {name: self._own_only(value) for name, value in plain.items()}
        if isinstance(plain, list):
            return [self._own_only(entry) for entry in plain if not _is_foreign(entry)]
        return plain


def _is_foreign(entry: Plain) -> bool:
    """Whether the row belongs to another run: names of runs begin with `run-`."""
    if not isinstance(entry, dict):
        return False
    return any(
        isinstance(value, str) and value.startswith("run-") for name, value in entry.items() if name in _NAMES
    )


def _hex(value: bytes | memoryview | None) -> str | None:
    return None if value is None else bytes(value).decode("latin-1")


def _without(plain: Plain, ignored: frozenset[str]) -> Plain:
    if isinstance(plain, dict):
        return {name: _without(value, ignored) for name, value in plain.items() if name not in ignored}
    if isinstance(plain, list):
        return [_without(entry, ignored) for entry in plain]
    return plain


def _sorted(
    plain: Plain, order: Callable[[Plain], str] = lambda entry: json.dumps(entry, sort_keys=True)
) -> Plain:
    """Kafka answers many lists in the order of a hash map; batches keep theirs, for they carry offsets."""
    if isinstance(plain, dict):
        return {name: value if name == "records" else _sorted(value, order) for name, value in plain.items()}
    if isinstance(plain, list):
        return sorted((_sorted(entry, order) for entry in plain), key=order)
    return plain


def differences(kafka: Plain, felice: Plain, path: str = "") -> list[tuple[str, Plain, Plain]]:
    """(path, Kafka's value, Felice's value) wherever two answers differ; list positions are `[]`."""
    if isinstance(kafka, dict) and isinstance(felice, dict):
        found = []
        for name in sorted(kafka.keys() | felice.keys()):
            found += differences(kafka.get(name), felice.get(name), f"{path}.{name}" if path else name)
        return found
    if isinstance(kafka, list) and isinstance(felice, list):
        return _list_differences(kafka, felice, f"{path}[]")
    return [] if kafka == felice else [(path, kafka, felice)]


def _list_differences(kafka: list[Plain], felice: list[Plain], path: str) -> list[tuple[str, Plain, Plain]]:
    """Of the entries that only one of the two has, pairs with the same name or index are compared."""
    only_kafka = [entry for entry in kafka if entry not in felice]
    only_felice = [entry for entry in felice if entry not in kafka]
    found = []
    for entry in only_kafka:
        other = next((other for other in only_felice if _identity(other) == _identity(entry)), None)
        if other is not None:
            only_felice.remove(other)
            found += differences(entry, other, path)
        else:
            found.append((path, entry, None))
    found += [(path, None, entry) for entry in only_felice]
    if not found and len(kafka) != len(felice):
        found.append((f"{path} times", len(kafka), len(felice)))
    return found


def _identity(entry: Plain) -> list[Plain]:
    if not isinstance(entry, dict):
        return [entry]
    return [value for name, value in entry.items() if name in _IDENTIFYING]
