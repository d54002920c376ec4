"""The serializers or deserializers of one client: taken from its configuration, called, and closed.

Keeps true:  A client closes every serializer that its builders created, even if closing another fails. The
             application closes those that it created itself.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Protocol, cast

from felice.client.error import (
    KeyDeserializationError,
    KeySerializationError,
    ValueDeserializationError,
    ValueSerializationError,
)
from felice.client.model import Message
from felice.client.serialization import MessageField, SerializationContext

# The application decides what its serializers accept and its deserializers return.
Serde = Callable[[Any, SerializationContext], Any]


class _Built(Protocol):
    def __call__(self, obj: Any, ctx: SerializationContext, /) -> Any: ...
    def close(self) -> None: ...


class _Builder(Protocol):
    def build(self, conf: Mapping[str, object], is_key: bool, /) -> tuple[_Built, dict[str, object]]: ...


class Serdes:
    """The serializers (or deserializers) of key and value; None leaves that part of the message unchanged.

    `suffix` is `serializer` or `deserializer`: the configuration has `key.<suffix>`, `value.<suffix>`, or either
    followed by `.builder`.
    """

    def __init__(self, config: Mapping[str, object], suffix: str) -> None:
        # The rest of the configuration, for the client itself.
        self.config = dict(config)
        self._built: list[_Built] = []
        self._given = {part: self._take(f"{part}.{suffix}") for part in ("key", "value")}
        self.key, self.value = self._given["key"][0], self._given["value"][0]
        self._build()

    def _build(self) -> None:
        with self.closed_on_error():
            self.key = self._ready(*self._given["key"], is_key=True)
            self.value = self._ready(*self._given["value"], is_key=False)

    @contextlib.contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Close the serializers if the block raises: a client that cannot be created would never close them."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _take(self, name: str) -> tuple[Serde | None, _Builder | None]:
        serde, builder = self.config.pop(name, None), self.config.pop(f"{name}.builder", None)
        if serde is not None and builder is not None:
            raise ValueError(f"{name} and {name}.builder are mutually exclusive")
        return cast("Serde | None", serde), cast("_Builder | None", builder)

    def _ready(self, serde: Serde | None, builder: _Builder | None, *, is_key: bool) -> Serde | None:
        if builder is None:
            return serde
        built, self.config = builder.build(self.config, is_key)
        self._built.append(built)
        return built

    def offer_cluster_id(self, resolver: Callable[[], object]) -> None:
        """Pass a way to look up the cluster's id to the serializers that accept one."""
        for serde in (self.key, self.value):
            take = getattr(serde, "set_cluster_id_resolver", None)
            if take is not None:
                take(resolver)

    def serialize(self, topic: str, key: object, value: object, headers: object) -> tuple[Any, Any]:
        """Convert key and value to bytes. The key comes first: its serializer may prepare headers for the value's."""
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a str, not {type(topic).__name__}")
        context = SerializationContext(topic, MessageField.KEY, headers)
        if self.key is not None:
            key = _call(self.key, key, context, KeySerializationError)
        context.field = MessageField.VALUE
        if self.value is not None:
            value = _call(self.value, value, context, ValueSerializationError)
        return key, value

    def deserialize(self, message: Message) -> Message:
        """Replace the message's key and value by objects."""
        context = SerializationContext(message.topic() or "", MessageField.KEY, message.headers())
        key, value = message.key(), message.value()
        if self.key is not None:
            key = _call(self.key, key, context, lambda error: KeyDeserializationError(error, message))
        context.field = MessageField.VALUE
        if self.value is not None:
            value = _call(self.value, value, context, lambda error: ValueDeserializationError(error, message))
        message.set_key(key)
        message.set_value(value)
        return message

    def close(self) -> None:
        """Close the serializers that builders created, all of them even if one raises."""
        built, self._built = self._built, []
        with contextlib.ExitStack() as stack:
            for serde in reversed(built):
                stack.callback(serde.close)


class AsyncSerdes(Serdes):
    """The serializers (or deserializers) of a client of asyncio.

    Builders may be coroutine functions; if there are any, `build` has to be awaited before the first use.
    """

    def _build(self) -> None:
        """Leave the builders to `build`."""

    @property
    def has_builders(self) -> bool:
        """Whether something is to be built."""
        return any(builder is not None for _, builder in self._given.values())

    async def build(self) -> None:
        """Let the builders create what they build. If one fails, what the others created is closed."""
        async with self.closed_on_error_later():
            self.key = await self._ready_later(*self._given["key"], is_key=True)
            self.value = await self._ready_later(*self._given["value"], is_key=False)

    @contextlib.asynccontextmanager
    async def closed_on_error_later(self) -> AsyncIterator[None]:
        """As `closed_on_error`, awaiting."""
        try:
            yield
        except BaseException:
            await self.aclose()
            raise

    async def _ready_later(
        self, serde: Serde | None, builder: _Builder | None, *, is_key: bool
    ) -> Serde | None:
        if builder is None:
            return serde
        built, self.config = await settled(builder.build(self.config, is_key))
        self._built.append(built)
        return cast("Serde", built)

    def offer_cluster_id(self, resolver: Callable[[], object]) -> None:
        """Pass a coroutine function that looks up the cluster's id to the serializers that can await it."""
        for serde in (self.key, self.value):
            take = getattr(serde, "set_async_cluster_id_resolver", None)
            if take is not None:
                take(resolver)

    async def serialize_later(
        self, topic: str, key: object, value: object, headers: object
    ) -> tuple[Any, Any]:
        """As `serialize`; the serializers may be coroutine functions."""
        context = SerializationContext(topic, MessageField.KEY, headers)
        if self.key is not None:
            key = await _call_later(self.key, key, context, KeySerializationError)
        context.field = MessageField.VALUE
        if self.value is not None:
            value = await _call_later(self.value, value, context, ValueSerializationError)
        return key, value

    async def deserialize_later(self, message: Message) -> None:
        """As `deserialize`; the deserializers may be coroutine functions."""
        context = SerializationContext(message.topic() or "", MessageField.KEY, message.headers())
        key, value = message.key(), message.value()
        if self.key is not None:
            key = await _call_later(
                self.key, key, context, lambda error: KeyDeserializationError(error, message)
            )
        context.field = MessageField.VALUE
        if self.value is not None:
            value = await _call_later(
                self.value, value, context, lambda error: ValueDeserializationError(error, message)
            )
        message.set_key(key)
        message.set_value(value)

    async def aclose(self) -> None:
        """Close the serializers that builders created, all of them even if one raises."""
        built, self._built = self._built, []
        async with contextlib.AsyncExitStack() as stack:
            for serde in reversed(built):
                stack.push_async_callback(_close_later, serde)


async def _close_later(serde: Any) -> None:
    await settled((serde.aclose if hasattr(serde, "aclose") else serde.close)())


async def settled(value: Any) -> Any:
    """The value, or the result of an awaitable."""
    return await value if inspect.isawaitable(value) else value


def _call(
    serde: Serde, obj: object, context: SerializationContext, failed: Callable[[Exception], Exception]
) -> Any:
    try:
        return serde(obj, context)
    except Exception as error:
        raise failed(error) from error


async def _call_later(
    serde: Serde, obj: object, context: SerializationContext, failed: Callable[[Exception], Exception]
) -> Any:
    try:
        return await settled(serde(obj, context))
    except Exception as error:
        raise failed(error) from error
