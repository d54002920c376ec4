"""Serializers and deserializers: turn objects into the bytes of a key or a value, and back.

Keeps true:  None stays None (a record without a key, a tombstone) in both directions. An object that cannot be
             turned raises `SerializationError`.
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
    """The part of a message that is being turned."""

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
    """Base class: turns objects into bytes. Subclasses define `__call__`."""

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """The bytes of `obj`, None for None. Raises `SerializationError`."""
        raise NotImplementedError

    def set_cluster_id_resolver(self, resolver: Callable[[], Any]) -> None:
        """Take a callable that returns the cluster's id (it may block). This class has no use for it."""

    def close(self) -> None:
        """Release what this serializer holds. Called by the client that built it from a `SerializerBuilder`."""


class Deserializer:
    """Base class: turns bytes into objects. Subclasses define `__call__`."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """The object of `value`, None for None. Raises `SerializationError`."""
        raise NotImplementedError

    def set_cluster_id_resolver(self, resolver: Callable[[], Any]) -> None:
        """Take a callable that returns the cluster's id (it may block). This class has no use for it."""

    def close(self) -> None:
        """Release what this deserializer holds. Called by the client that built it from a `DeserializerBuilder`."""


class SerializerBuilder:
    """Base class: makes a serializer when a client is made, from the client's own configuration."""

    def build(self, conf: Mapping[str, Any], is_key: bool) -> tuple[Serializer, dict[str, Any]]:
        """The serializer, and the configuration without the properties that only the builder reads."""
        raise NotImplementedError


class DeserializerBuilder:
    """Base class: makes a deserializer when a client is made, from the client's own configuration."""

    def build(self, conf: Mapping[str, Any], is_key: bool) -> tuple[Deserializer, dict[str, Any]]:
        """The deserializer, and the configuration without the properties that only the builder reads."""
        raise NotImplementedError


def _pack(layout: struct.Struct, obj: Any) -> bytes | None:
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
    """An int as a signed 32-bit number."""

    def __call__(self, obj: int | None, ctx: SerializationContext | None = None) -> bytes | None:
        """Four bytes. Raises `SerializationError` for what is not a whole number of 32 bits."""
        return _pack(_INT32, obj)


class IntegerDeserializer(Deserializer):
    """A signed 32-bit number as an int."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> int | None:
        """The number. Raises `SerializationError` unless there are four bytes."""
        number: int | None = _unpack(_INT32, value)
        return number


class DoubleSerializer(Serializer):
    """A float as IEEE 754 binary64."""

    def __call__(self, obj: float | None, ctx: SerializationContext | None = None) -> bytes | None:
        """Eight bytes. Raises `SerializationError` for what is not a number."""
        return _pack(_FLOAT64, obj)


class DoubleDeserializer(Deserializer):
    """IEEE 754 binary64 as a float."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> float | None:
        """The number. Raises `SerializationError` unless there are eight bytes."""
        number: float | None = _unpack(_FLOAT64, value)
        return number


class StringSerializer(Serializer):
    """A str in an encoding, UTF-8 unless another is named."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, obj: str | None, ctx: SerializationContext | None = None) -> bytes | None:
        """The encoded bytes. Raises `SerializationError` for characters that the encoding lacks."""
        try:
            return None if obj is None else obj.encode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error


class StringDeserializer(Deserializer):
    """A str from an encoding, UTF-8 unless another is named."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> str | None:
        """The string. Raises `SerializationError` for bytes that the encoding does not allow."""
        try:
            return None if value is None else value.decode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error
