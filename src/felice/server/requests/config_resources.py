"""The resources that have configurations, and the common steps of all requests that change configurations.

A resource is a topic by its name, or a broker or its loggers by the broker's id. The empty id of a broker means all
brokers; loggers do not have it. `named_resources` has the others.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from felice.config import TOPIC_OPTIONS, BrokerConfig, Option, canonical_texts, shortened
from felice.config.kafka_only import nearest
from felice.config.security import split_name
from felice.controller import topic_names
from felice.env.key_stores import TlsError
from felice.metadata.layout import DEFAULT_ENTITY, broker_config_path
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.alter_configs import AlterConfigsResourceResponse
from felice.protocol.messages.describe_configs import ResourceType
from felice.server.configs.dynamic import check_dynamic, check_not_shut_out, usable, without_effect
from felice.server.configs.entries import (
    ConfigEntry,
    broker_entries,
    named_option,
    topic_entries,
)
from felice.server.flow.pace import paced
from felice.server.quotas.connection_rates import plain_address
from felice.server.requests.named_resources import NAMED_RESOURCES, Edit
from felice.server.security.tls import SecuredListener

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_log = logging.getLogger("felice.server")

# The most configurations of one resource in a request, because they are checked in one step of the event loop. A broker
# of Kafka has about 350.
_MAX_CONFIGS = 1000
# The most unknown options of one request that are logged with the nearest known name: finding it takes half a
# millisecond each.
_MAX_WARNINGS = 10

EditOf = Callable[[Callable[[], Sequence[ConfigEntry]], Mapping[str, Option]], Edit]
"""Makes the edit of a resource from two arguments: a function that returns its configurations in force, which takes
about a millisecond, and the options that it may have."""


class Resource(Protocol):
    """A resource in a request."""

    resource_type: int
    resource_name: str
    configs: list[Any]


R = TypeVar("R", bound=Resource)


class ChangeRequest(Protocol, Generic[R]):
    """A request that changes resources, or checks the changes only."""

    resources: list[R]
    validate_only: bool


async def change_each(
    request: ChangeRequest[R],
    change: Callable[[R, bool, RequestContext], Awaitable[None]],
    context: RequestContext,
) -> list[AlterConfigsResourceResponse]:
    """Changes the resources one after the other, with pauses. Returns one row per resource, with its error.

    A resource that is named twice is not changed, and each of its rows has INVALID_REQUEST.
    """
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    rows = []
    async for resource in paced(request.resources, context.services.env.clock):
        kind, name = resource.resource_type, resource.resource_name
        row = AlterConfigsResourceResponse(resource_type=kind, resource_name=name, error_message=None)
        try:
            if times[kind, name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if len(resource.configs) > _MAX_CONFIGS:
                reason = f"The request has {len(resource.configs)} configurations, at most {_MAX_CONFIGS} are taken."
                raise ApiError(ErrorCode.INVALID_REQUEST, reason)
            await change(resource, request.validate_only, context)
        except ApiError as error:
            row.error_code, row.error_message = error.code, error.message
        rows.append(row)
    return rows


async def change_resource(
    resource: Resource, edit_of: EditOf, validate_only: bool, context: RequestContext
) -> None:
    """Changes a resource whose configurations are in the metadata store. Raises `ApiError`, also for other types."""
    name, services = resource.resource_name, context.services
    if resource.resource_type == ResourceType.TOPIC:
        edit = edit_of(
            lambda: topic_entries(services.image.topic_configs.get(name, {}), services.config_layers),
            TOPIC_OPTIONS,
        )
        await _change_topic(name, edit, validate_only, context)
    elif resource.resource_type == ResourceType.BROKER:
        named = [config.name for config in resource.configs]
        options = {key: named_option(key) for key in named}
        edit = edit_of(lambda: broker_entries(services.config_layers), options)
        await _change_broker(name, edit, named, validate_only, context)
    elif (named_kind := NAMED_RESOURCES.get(resource.resource_type)) is not None:
        edit = edit_of(lambda: named_kind.entries(name, context), named_kind.options)
        await named_kind.change(name, edit, validate_only, context)
    else:
        raise unsupported(resource.resource_type)


async def _change_topic(name: str, edit: Edit, validate_only: bool, context: RequestContext) -> None:
    """Edits the configuration of one topic. Raises `ApiError`."""
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "There is no configuration of all topics.")
    check_topic(name, context)
    await context.services.changes.cluster.change_topic_config(name, edit, validate_only=validate_only)


async def _change_broker(
    name: str, edit: Edit, named: Iterable[str], validate_only: bool, context: RequestContext
) -> None:
    """Edits the dynamic configuration of one broker, or of all brokers if `name` is empty. Raises `ApiError`.

    `named` are the options that the request names: setting the file of a key store again rereads it.
    """
    if name:
        check_broker(name, context)
    services = context.services
    idle: list[str] = []

    def effective(changed: Mapping[str, str]) -> BrokerConfig | None:
        configs = services.image.broker_configs
        of_all = configs.get(DEFAULT_ENTITY, {}) if name else changed
        own = changed if name else configs.get(str(services.broker_id), {})
        return usable(services.settings.static, {**of_all, **own})[0]

    def checked(current: Mapping[str, str]) -> Mapping[str, str]:
        changed = canonical_texts(edit(current), named_option)
        check_dynamic(current, changed, services.settings.static, for_all=not name)
        check_not_shut_out(plain_address(context.session.peer), effective(changed))
        idle[:] = without_effect(current, changed)
        return changed

    secured = await _prepare_tls(checked, named, name, context)
    path = broker_config_path(name or DEFAULT_ENTITY)
    await services.changes.cluster.change_config(path, checked, validate_only=validate_only)
    if not validate_only:
        services.security.tls.apply(secured)
        _warn_of(idle, name)


async def _prepare_tls(
    checked: Edit, named: Iterable[str], broker: str, context: RequestContext
) -> dict[str, SecuredListener]:
    """Builds new TLS contexts for the listeners whose security options the request names. Raises `ApiError`."""
    parts = [split_name(name) for name in named]
    uses_tls = context.services.security.tls.uses_tls
    secured = [found.listener for found in parts if found is not None and found.is_security]
    listeners = {name for name in secured if uses_tls(name)}
    if not listeners:
        return {}
    configs = context.services.image.broker_configs
    changed = checked(configs.get(broker, {}))
    config = context.services.settings.static.changed({**configs.get(DEFAULT_ENTITY, {}), **changed})
    try:
        return await context.services.security.tls.prepare(config, listeners)
    except TlsError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _warn_of(names: Sequence[str], broker: str) -> None:
    for name in names[:_MAX_WARNINGS]:
        extra = {"option": name, "broker": broker or "all", "did_you_mean": nearest(name) or "-"}
        _log.warning("a configuration option that has no effect was set", extra=extra)
    if len(names) > _MAX_WARNINGS:
        left = {"count": len(names) - _MAX_WARNINGS, "broker": broker or "all"}
        _log.warning("more configuration options that have no effect were set", extra=left)


def unsupported(resource_type: int) -> ApiError:
    """The error for a resource type that has no configurations."""
    return ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")


def check_topic(name: str, context: RequestContext) -> None:
    """Raises `ApiError` unless the topic exists."""
    if fault := topic_names.fault_of(name):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    if name not in context.services.image.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def check_logger_broker(name: str, context: RequestContext) -> None:
    """Raises `ApiError` unless `name` is the id of this broker: the loggers of all brokers have no levels."""
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    check_broker(name, context)


def check_broker(name: str, context: RequestContext) -> None:
    """Raises `ApiError` unless `name` is the id of this broker or empty."""
    if name != str(context.services.broker_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {context.services.broker_id} or empty string, "
            f"but received {shortened(name)}",
        )
