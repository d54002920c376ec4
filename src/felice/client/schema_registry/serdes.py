"""The shells of serializers and deserializers: they run the steps on a client of the registry, blocking or awaiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, ClassVar, Self

from felice.client.schema_registry.deserializing import Deserializing
from felice.client.schema_registry.serializing import Serializing
from felice.client.schema_registry.steps import Alone, Ask, Call, Step, run, run_async
from felice.client.schema_registry.subjects import (
    AssociatedNameStrategy,
    AssociatedSubjects,
    AsyncAssociatedNameStrategy,
)
from felice.client.serialization import Deserializer, SerializationContext, Serializer
from felice.client.serialization.serdes import settled

AnySteps = Serializing[Any] | Deserializing[Any]


class Serde:
    """What all serializers and deserializers have in common, blocking or of asyncio."""

    _core: Any
    _registry: Any
    _owns_registry = False
    _associated: ClassVar[type[AssociatedSubjects]]
    """The strategy ASSOCIATED."""

    def _start(self, registry: Any, core: AnySteps) -> None:
        raise NotImplementedError

    def own_schema_registry_client(self) -> None:
        """Let the call that closes this object close the registry's client, too."""
        self._owns_registry = True


class BaseSerde(Serde):
    """What blocking serializers and deserializers have in common."""

    _associated = AssociatedNameStrategy

    def _start(self, registry: Any, core: AnySteps) -> None:
        """Remember the steps, and prepare: this may ask the registry for schemas that the own schema refers to."""
        self._registry, self._core = registry, core
        self._alone = threading.Lock()
        run(core.prepare(), self._perform)

    def _perform(self, step: Step) -> object:
        if isinstance(step, Ask):
            return getattr(self._registry, step.method)(*step.arguments, **step.keywords)
        if isinstance(step, Alone):
            with self._alone:
                return run(step.steps, self._perform)
        assert isinstance(step, Call)
        return step.function(*step.arguments)

    def set_cluster_id_resolver(self, resolver: Callable[[], object]) -> None:
        """Accept a function that returns the cluster's id; the strategy ASSOCIATED uses it."""
        if isinstance(self._core.subjects.function, AssociatedNameStrategy):
            self._core.subjects.function.set_cluster_id_resolver(resolver)

    def close(self) -> None:
        """Close the registry's client if this object owns it."""
        if self._owns_registry:
            self._owns_registry = False
            self._registry.close()


class BaseSerializer(BaseSerde, Serializer):
    """A blocking serializer."""

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """Return the bytes of an object; None for None. Raises `SerializationError`, and the errors of the registry.

        An object that does not match the schema raises the error of the format's library.
        """
        data: bytes | None = run(self._core.serialize(obj, ctx), self._perform)
        return data


class BaseDeserializer(BaseSerde, Deserializer):
    """A blocking deserializer."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """Return the object of a message's bytes; None for None. Raises `SerializationError` for damaged data."""
        return run(self._core.deserialize(value, ctx), self._perform)


class AsyncBaseSerde(Serde):
    """What asyncio's serializers and deserializers have in common. Create them with `await`."""

    _associated = AsyncAssociatedNameStrategy

    def _start(self, registry: Any, core: AnySteps) -> None:
        self._registry, self._core = registry, core
        self._alone = asyncio.Lock()
        self._prepared = False

    def __await__(self) -> Generator[Any, None, Self]:
        return self._prepare().__await__()

    async def _prepare(self) -> Self:
        if not self._prepared:
            await run_async(self._core.prepare(), self._perform)
            self._prepared = True
        return self

    def _check_prepared(self) -> None:
        if not self._prepared:
            name = type(self).__name__
            raise RuntimeError(f"{name} is not ready: create it with `await {name}(...)`")

    async def _perform(self, step: Step) -> object:
        if isinstance(step, Ask):
            return await settled(getattr(self._registry, step.method)(*step.arguments, **step.keywords))
        if isinstance(step, Alone):
            async with self._alone:
                return await run_async(step.steps, self._perform)
        assert isinstance(step, Call)
        return await settled(step.function(*step.arguments))

    def set_async_cluster_id_resolver(self, resolver: Callable[[], Awaitable[object]]) -> None:
        """Accept a coroutine function that returns the cluster's id; the strategy ASSOCIATED uses it."""
        if isinstance(self._core.subjects.function, AsyncAssociatedNameStrategy):
            self._core.subjects.function.set_async_cluster_id_resolver(resolver)

    async def aclose(self) -> None:
        """Close the registry's client if this object owns it."""
        if self._owns_registry:
            self._owns_registry = False
            await self._registry.aclose()


class AsyncBaseSerializer(AsyncBaseSerde, Serializer):
    """A serializer of asyncio."""

    def __call__(  # type: ignore[override]
        self, obj: Any, ctx: SerializationContext | None = None
    ) -> Coroutine[Any, Any, bytes | None]:
        """Return a coroutine of the bytes; otherwise as `BaseSerializer`."""
        self._check_prepared()
        return run_async(self._core.serialize(obj, ctx), self._perform)


class AsyncBaseDeserializer(AsyncBaseSerde, Deserializer):
    """A deserializer of asyncio."""

    def __call__(
        self, value: bytes | None, ctx: SerializationContext | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Return a coroutine of the object; otherwise as `BaseDeserializer`."""
        self._check_prepared()
        return run_async(self._core.deserialize(value, ctx), self._perform)
