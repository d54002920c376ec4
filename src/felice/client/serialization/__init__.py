"""Serializers and deserializers: convert objects to the bytes of a key or a value, and back.

Keeps true:  None stays None (a record without a key, a tombstone) in both directions. An object that cannot be
             converted raises `SerializationError`.
A serializer is a callable `(obj, SerializationContext) -> bytes | None`, a deserializer the inverse. Numbers are
signed and big-endian, as Java's serializers write them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from felice.client.error import SerializationError

__all__ = [
    "Deserializer",
    "DeserializerBuilder",
    "DoubleDeserializer",
    "DoubleSerializer",
    "IntegerDeserializer",
    "IntegerSerializer",
    "MessageField",
    "SerializationContext",
    "SerializationError",
    "Serializer",
    "SerializerBuilder",
    "StringDeserializer",
    "StringSerializer",
]


class MessageField(StrEnum):
    """The part of a message that is being converted."""

    NONE = "none"
    KEY = "key"
    VALUE = "value"


class SerializationContext:
    """Where the object belongs: the topic, the part of the message, and the message's headers."""

    def __init__(self, topic: str, field: MessageField, headers: Any = None) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers


class Serializer:
    """Base class of serializers, which convert objects to bytes. Subclasses define `__call__`."""

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """Return the bytes of `obj`; None for None. Raises `SerializationError`."""
        raise NotImplementedError

    def set_cluster_id_resolver(self, resolver: Callable[[], object]) -> None:
        """Accept a callable that returns the cluster's id (it may block). This class does not use it."""

    def close(self) -> None:
        """Release resources. Called by the client that built this serializer from a `SerializerBuilder`."""


class Deserializer:
    """Base class of deserializers, which convert bytes to objects. Subclasses define `__call__`."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """Return the object of `value`; None for None. Raises `SerializationError`."""
        raise NotImplementedError

    def set_cluster_id_resolver(self, resolver: Callable[[], object]) -> None:
        """Accept a callable that returns the cluster's id (it may block). This class does not use it."""

    def close(self) -> None:
        """Release resources. Called by the client that built this deserializer from a `DeserializerBuilder`."""


class SerializerBuilder:
    """Base class: builds a serializer from the client's configuration when the client is created."""

    def build(self, conf: Mapping[str, object], is_key: bool) -> tuple[Serializer, dict[str, object]]:
        """Return the serializer, and the configuration without the properties that only the builder reads."""
        raise NotImplementedError


class DeserializerBuilder:
    """Base class: builds a deserializer from the client's configuration when the client is created."""

    def build(self, conf: Mapping[str, object], is_key: bool) -> tuple[Deserializer, dict[str, object]]:
        """Return the deserializer, and the configuration without the properties that only the builder reads."""
        raise NotImplementedError


def _pack(layout: struct.Struct, obj: object) -> bytes | None:
    try:
        return None if obj is None else layout.pack(obj)
    except struct.error as error:
        raise SerializationError(str(error)) from error


def _unpack(layout: struct.Struct, value: bytes | None) -> Any:
    try:
        return None if value is None else layout.unpack(value)[0]
    except struct.error as error:
        raise SerializationError(str(error)) from error


_INT32 = struct.Struct(">i")
_FLOAT64 = struct.Struct(">d")


class IntegerSerializer(Serializer):
    """Converts an int to a signed 32-bit number."""

    def __call__(self, obj: int | None, ctx: SerializationContext | None = None) -> bytes | None:
        """Return four bytes. Raises `SerializationError` unless `obj` is a whole number of 32 bits."""
        return _pack(_INT32, obj)


class IntegerDeserializer(Deserializer):
    """Converts a signed 32-bit number to an int."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> int | None:
        """Return the number. Raises `SerializationError` unless there are four bytes."""
        number: int | None = _unpack(_INT32, value)
        return number


class DoubleSerializer(Serializer):
    """Converts a float to IEEE 754 binary64."""

    def __call__(self, obj: float | None, ctx: SerializationContext | None = None) -> bytes | None:
        """Return eight bytes. Raises `SerializationError` unless `obj` is a number."""
        return _pack(_FLOAT64, obj)


class DoubleDeserializer(Deserializer):
    """Converts IEEE 754 binary64 to a float."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> float | None:
        """Return the number. Raises `SerializationError` unless there are eight bytes."""
        number: float | None = _unpack(_FLOAT64, value)
        return number


class StringSerializer(Serializer):
    """Encodes a str; the default encoding is UTF-8."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, obj: str | None, ctx: SerializationContext | None = None) -> bytes | None:
        """Return the encoded bytes. Raises `SerializationError` for characters that the encoding lacks."""
        try:
            return None if obj is None else obj.encode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error


class StringDeserializer(Deserializer):
    """Decodes a str; the default encoding is UTF-8."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> str | None:
        """Return the string. Raises `SerializationError` for bytes that are invalid in the encoding."""
        try:
            return None if value is None else value.decode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error
