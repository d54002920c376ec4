"""How serializers find the subject of a message: by its topic, by its record's name, or by an association.

Keeps true:  the same topic, field and record name give the same subject as long as a serializer lives, unless the
             application clears the strategy's cache.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any

from felice.client.schema_registry.caches import CAPACITY, Cache
from felice.client.schema_registry.error import SchemaRegistryError
from felice.client.schema_registry.model import SchemaReference
from felice.client.schema_registry.steps import Ask, Call, Steps, run, run_async
from felice.client.serialization import MessageField, SerializationContext, SerializationError

KAFKA_CLUSTER_ID = "subject.name.strategy.kafka.cluster.id"
FALLBACK_TYPE = "subject.name.strategy.fallback.type"
_ANY_CLUSTER = "-"

Strategy = Callable[[SerializationContext | None, str | None], str | None]


class SubjectNameStrategyType(StrEnum):
    """The strategies by name, for `subject.name.strategy.type`."""

    NONE = "NONE"
    TOPIC = "TOPIC"
    RECORD = "RECORD"
    TOPIC_RECORD = "TOPIC_RECORD"
    ASSOCIATED = "ASSOCIATED"


def _given(ctx: SerializationContext | None) -> SerializationContext:
    if ctx is None:
        raise ValueError("a subject that depends on the topic needs a SerializationContext")
    return ctx


def topic_subject_name_strategy(ctx: SerializationContext | None, record_name: str | None) -> str | None:
    """The subject TOPIC-key or TOPIC-value. Raises ValueError without a context."""
    return f"{_given(ctx).topic}-{_given(ctx).field}"


def topic_record_subject_name_strategy(
    ctx: SerializationContext | None, record_name: str | None
) -> str | None:
    """The subject TOPIC-RECORD; None if the record has no name. Raises ValueError without a context."""
    topic = _given(ctx).topic
    return None if record_name is None else f"{topic}-{record_name}"


def record_subject_name_strategy(ctx: SerializationContext | None, record_name: str | None) -> str | None:
    """The record's name as subject; None if it has no name."""
    return record_name


def reference_subject_name_strategy(
    ctx: SerializationContext | None, schema_ref: SchemaReference
) -> str | None:
    """The name of a referenced file as its subject."""
    return None if schema_ref is None else schema_ref.name


STRATEGY_TYPE_MAP: dict[SubjectNameStrategyType, Strategy] = {
    SubjectNameStrategyType.TOPIC: topic_subject_name_strategy,
    SubjectNameStrategyType.RECORD: record_subject_name_strategy,
    SubjectNameStrategyType.TOPIC_RECORD: topic_record_subject_name_strategy,
}
"""The strategies that ask nothing."""


class AssociatedSubjects:
    """The subject that the registry associates with the topic, otherwise that of a fallback strategy; as steps.

    `conf` may name the cluster (`KAFKA_CLUSTER_ID`) and the fallback (`FALLBACK_TYPE`; TOPIC unless set).
    """

    def __init__(self, cache_capacity: int = CAPACITY) -> None:
        self._known: Cache[tuple[str, bool, str | None], str] = Cache(cache_capacity)
        self._cluster_id: Callable[[], object] | None = None

    def steps(
        self,
        ctx: SerializationContext | None,
        record_name: str | None,
        conf: Mapping[str, Any] | None,
        has_registry: bool,
    ) -> Steps[str | None]:
        """Return the subject. Raises ValueError without a context, and `SerializationError` for several subjects."""
        if ctx is None:
            raise ValueError("a subject that depends on the topic needs a SerializationContext")
        if ctx.topic is None:
            return None
        key = (ctx.topic, ctx.field == MessageField.KEY, record_name)
        subject = self._known.get(key)
        if subject is None:
            subject = yield from self._look_up(ctx, record_name, conf or {}, has_registry)
            if subject is not None:
                self._known.put(key, subject)
        return subject

    def _look_up(
        self,
        ctx: SerializationContext,
        record_name: str | None,
        conf: Mapping[str, Any],
        has_registry: bool,
    ) -> Steps[str | None]:
        if not has_registry:
            return topic_subject_name_strategy(ctx, record_name)
        fallback = _type_of(conf.get(FALLBACK_TYPE, SubjectNameStrategyType.TOPIC), FALLBACK_TYPE)
        namespace = yield from self._namespace(conf)
        kind = "key" if ctx.field == MessageField.KEY else "value"
        try:
            found = yield Ask(
                "get_associations_by_resource_name",
                resource_name=ctx.topic,
                resource_namespace=namespace,
                resource_type="topic",
                association_types=[kind],
                offset=0,
                limit=-1,
            )
        except SchemaRegistryError as error:
            if error.http_status_code != 404:
                raise
            found = []
        if len(found) > 1:
            raise SerializationError(f"the registry associates {len(found)} subjects with topic {ctx.topic}")
        return found[0].subject if found else _fallen_back(fallback, ctx, record_name)

    def _namespace(self, conf: Mapping[str, Any]) -> Steps[str]:
        if conf.get(KAFKA_CLUSTER_ID):
            return str(conf[KAFKA_CLUSTER_ID])
        if self._cluster_id is None:
            return _ANY_CLUSTER
        try:
            found = yield Call(self._cluster_id)
        except Exception as error:
            reason = f"the id of the cluster is not known, and {KAFKA_CLUSTER_ID} is not set: {error}"
            raise SerializationError(reason) from error
        if not found:
            raise SerializationError(f"the cluster has no id, and {KAFKA_CLUSTER_ID} is not set")
        return str(found)


def _fallen_back(
    fallback: SubjectNameStrategyType, ctx: SerializationContext, record_name: str | None
) -> str | None:
    if fallback is SubjectNameStrategyType.NONE:
        raise SerializationError(f"the registry associates no subject with topic {ctx.topic}")
    if fallback is SubjectNameStrategyType.ASSOCIATED:
        raise ValueError(f"{FALLBACK_TYPE} must not be ASSOCIATED")
    return STRATEGY_TYPE_MAP[fallback](ctx, record_name)


def _type_of(given: object, name: str) -> SubjectNameStrategyType:
    try:
        return SubjectNameStrategyType(str(given).upper())
    except ValueError:
        types = ", ".join(SubjectNameStrategyType)
        raise ValueError(f"{name} must be one of {types}, not {given!r}") from None


class AssociatedNameStrategy(AssociatedSubjects):
    """The strategy ASSOCIATED for blocking serializers."""

    def set_cluster_id_resolver(self, resolver: Callable[[], object]) -> None:
        """Accept a function that returns the cluster's id."""
        self._cluster_id = resolver

    def clear_cache(self) -> None:
        """Forget the subjects."""
        self._known.clear()

    def __call__(
        self,
        ctx: SerializationContext | None,
        record_name: str | None,
        schema_registry_client: Any,
        conf: Mapping[str, Any] | None = None,
    ) -> str | None:
        """Return the subject, asking the registry if it is not known."""
        steps = self.steps(ctx, record_name, conf, schema_registry_client is not None)
        return run(steps, lambda step: _performed(step, schema_registry_client))


class AsyncAssociatedNameStrategy(AssociatedSubjects):
    """The strategy ASSOCIATED for asyncio's serializers."""

    def set_async_cluster_id_resolver(self, resolver: Callable[[], Awaitable[object]]) -> None:
        """Accept a coroutine function that returns the cluster's id."""
        self._cluster_id = resolver

    async def clear_cache(self) -> None:
        """Forget the subjects."""
        self._known.clear()

    async def __call__(
        self,
        ctx: SerializationContext | None,
        record_name: str | None,
        schema_registry_client: Any,
        conf: Mapping[str, Any] | None = None,
    ) -> str | None:
        """Return the subject, asking the registry if it is not known."""

        async def perform(step: object) -> object:
            return await _performed(step, schema_registry_client)

        return await run_async(
            self.steps(ctx, record_name, conf, schema_registry_client is not None), perform
        )


def _performed(step: object, registry: Any) -> Any:
    if isinstance(step, Ask):
        return getattr(registry, step.method)(*step.arguments, **step.keywords)
    assert isinstance(step, Call)
    return step.function(*step.arguments)


class Subjects:
    """The subject strategy of one serializer, as its configuration says."""

    def __init__(self, conf: dict[str, Any], associated: type[AssociatedSubjects]) -> None:
        """Take the strategy's properties from `conf`. `associated` is the class of the strategy ASSOCIATED."""
        kind = conf.pop("subject.name.strategy.type", None)
        self._conf: Mapping[str, Any] | None = conf.pop("subject.name.strategy.conf", None)
        function = conf.pop("subject.name.strategy", None)
        if function is None and kind is not None:
            kind = _type_of(kind, "subject.name.strategy.type")
            if kind is SubjectNameStrategyType.NONE:
                raise ValueError("subject.name.strategy.type must not be NONE")
            function = STRATEGY_TYPE_MAP.get(kind)
        elif function is not None and not callable(function):
            raise ValueError("subject.name.strategy must be callable")
        self.function: Strategy | AssociatedSubjects = associated() if function is None else function

    def of(
        self, ctx: SerializationContext | None, record_name: str | None, has_registry: bool
    ) -> Steps[str | None]:
        """Return the subject of a message, or None."""
        if isinstance(self.function, AssociatedSubjects):
            return (yield from self.function.steps(ctx, record_name, self._conf, has_registry))
        return self.function(ctx, record_name)
