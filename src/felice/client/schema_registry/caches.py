"""What a client of a registry remembers: each cache has a capacity, and the least recently used entries leave it."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from felice.client.schema_registry.model import PROTOBUF, RegisteredSchema, Schema

K = TypeVar("K")
V = TypeVar("V")

CAPACITY = 1000
"""Entries of a cache, unless `cache.capacity` says otherwise."""


SERIALIZED = "serialized"
"""The format of Protobuf schemas as file descriptors in base64."""

_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


def form_of(schema: Schema) -> str | None:
    """The format of a schema that an application has: `SERIALIZED`, or None for a text."""
    serialized = schema.schema_type == PROTOBUF and _BASE64.fullmatch(schema.schema_str or "")
    return SERIALIZED if serialized else None


class Cache(Generic[K, V]):
    """A mapping of limited size whose entries may also have a limited life. Several threads may use it."""

    def __init__(
        self, capacity: int = CAPACITY, life_s: float | None = None, clock: Callable[[], float] | None = None
    ) -> None:
        """`clock` gives the time in seconds; it is called only if entries have a life of `life_s` seconds."""
        self._capacity, self._life_s, self._clock = capacity, life_s, clock
        self._entries: OrderedDict[K, tuple[V, float]] = OrderedDict()
        self._lock = threading.Lock()

    def _now(self) -> float:
        return 0.0 if self._life_s is None or self._clock is None else self._clock()

    def get(self, key: K) -> V | None:
        """Return the value, or None if it is absent or its life is over."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            if self._life_s is not None and self._now() - entry[1] >= self._life_s:
                del self._entries[key]
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V) -> None:
        """Remember a value, from now on."""
        with self._lock:
            self._entries[key] = (value, self._now())
            self._entries.move_to_end(key)
            while len(self._entries) > self._capacity:
                self._entries.popitem(last=False)

    def remove(self, matches: Callable[[K, V], bool]) -> list[V]:
        """Forget the entries for which `matches` is true, and return their values."""
        with self._lock:
            keys = [key for key, (value, _) in self._entries.items() if matches(key, value)]
            return [self._entries.pop(key)[0] for key in keys]

    def clear(self) -> None:
        """Forget all entries."""
        with self._lock:
            self._entries.clear()


class SchemaCaches:
    """What a registry said about schemas, found by id, GUID, schema or version.

    The text of a schema depends on the format that was asked for (`fmt`), so keys contain it.
    """

    def __init__(self, capacity: int) -> None:
        self.by_id: Cache[tuple[str | None, int, str | None], tuple[str | None, Schema]] = Cache(capacity)
        self.by_guid: Cache[tuple[str, str | None], Schema] = Cache(capacity)
        self.ids: Cache[tuple[str | None, Schema], int] = Cache(capacity)
        self.registered_ids: Cache[tuple[str | None, int, str | None], RegisteredSchema] = Cache(capacity)
        self.versions: Cache[tuple[str | None, int | None, str | None], RegisteredSchema] = Cache(capacity)
        self.registered: Cache[tuple[str | None, Schema], RegisteredSchema] = Cache(capacity)

    def put_schema(
        self,
        subject: str | None,
        schema_id: int | None,
        guid: str | None,
        schema: Schema,
        fmt: str | None = None,
    ) -> None:
        """Remember the id and GUID of a schema, under a subject or under none."""
        if schema_id is not None:
            self.by_id.put((subject, schema_id, fmt), (guid, schema))
            self.ids.put((subject, schema), schema_id)
        if guid is not None:
            self.by_guid.put((guid, fmt), schema)

    def put_registered(self, schema: Schema, found: RegisteredSchema, fmt: str | None = None) -> None:
        """Remember a version of a subject."""
        self.put_schema(found.subject, found.schema_id, found.guid, schema, fmt)
        if found.schema_id is not None:
            self.registered_ids.put((found.subject, found.schema_id, fmt), found)
        self.versions.put((found.subject, found.version, fmt), found)
        self.registered.put((found.subject, schema), found)

    def forget_subject(self, subject: str) -> None:
        """Forget all that is known of a subject."""
        self.by_id.remove(lambda key, _: key[0] == subject)
        self.ids.remove(lambda key, _: key[0] == subject)
        self.registered_ids.remove(lambda key, _: key[0] == subject)
        self.versions.remove(lambda key, _: key[0] == subject)
        self.registered.remove(lambda key, _: key[0] == subject)

    def forget_version(self, subject: str, version: int) -> None:
        """Forget one version of a subject."""
        gone = self.versions.remove(lambda key, _: key[:2] == (subject, version))
        gone += self.registered.remove(lambda key, found: key[0] == subject and found.version == version)
        self.registered_ids.remove(lambda key, found: key[0] == subject and found.version == version)
        ids, schemas = {found.schema_id for found in gone}, [found.schema for found in gone]
        self.by_id.remove(lambda key, _: key[0] == subject and key[1] in ids)
        self.ids.remove(lambda key, _: key[0] == subject and key[1] in schemas)

    def clear(self) -> None:
        """Forget everything."""
        for cache in (
            self.by_id,
            self.by_guid,
            self.ids,
            self.registered_ids,
            self.versions,
            self.registered,
        ):
            cache.clear()
