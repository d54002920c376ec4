"""The mechanism of authorisation: needs of a request or of its items, and the guards that check them.

A guard wraps a handler: `request_needs` refuses requests, `items_need` removes items from the request and adds their
refusals to the response, `rows_need` removes rows from the response. What a refusal contains follows from the schemas
of the API's messages (`refusals`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from itertools import compress
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar, cast, overload
from uuid import UUID

from felice.protocol.api import TypedApi
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.describe_configs import ResourceType as ConfigResourceType
from felice.protocol.primitives import ZERO_UUID
from felice.protocol.schema import schema_of
from felice.security.acl import CLUSTER_NAME, Operation, ResourceType
from felice.server.access.refusals import NO_FIELDS, Fields, class_in, items_in, refused, row_between, rows_in
from felice.server.flow.pace import MAX_ITEMS_WITHOUT_PAUSE, held, paced
from felice.server.requests.large_answers import each_alone
from felice.server.security.access_control import Access

if TYPE_CHECKING:
    from felice.server.context import RequestContext

T = TypeVar("T")
Q = TypeVar("Q")
A = TypeVar("A")
Handle: TypeAlias = "Callable[[Q, RequestContext], Coroutine[object, object, A]]"
Guard: TypeAlias = "Callable[[Handle[Q, A]], Handle[Q, A]]"
Check: TypeAlias = "Callable[[T, RequestContext, Access], ErrorCode]"
"""Returns the error of a request or item that lacks a permission, NONE otherwise."""
Need: TypeAlias = "Callable[[type], Check[T]]"
NameOf: TypeAlias = "Callable[[T, RequestContext], str | None]"
"""The name of the resource that a request or item is about. None if nothing is needed: the handler refuses it."""


DENIED_CODES = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
_NAMES = {
    ResourceType.TOPIC: ("name", "topic"),
    ResourceType.GROUP: ("group_id",),
    ResourceType.TRANSACTIONAL_ID: ("transactional_id",),
}


class _Topic(Protocol):
    @property
    def name(self) -> str | None: ...
    @property
    def topic_id(self) -> UUID: ...


class _Config(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


# Needs


@overload
def permission(operation: Operation, kind: ResourceType) -> Need[object]: ...
@overload
def permission(operation: Operation, kind: ResourceType, name: NameOf[T]) -> Need[T]: ...
def permission(operation: Operation, kind: ResourceType, name: NameOf[T] | None = None) -> Need[T]:
    """A permission for the resource that the request or item names, or whose name `name` returns."""
    code = DENIED_CODES[kind]

    def need(message: type) -> Check[T]:
        name_of: NameOf[T] = name_in(message, kind) if name is None else name

        def check(item: T, context: RequestContext, access: Access) -> ErrorCode:
            found = name_of(item, context)
            return ErrorCode.NONE if found is None or access.allows(operation, kind, found) else code

        return check

    return need


def cluster_permission(operation: Operation) -> Need[object]:
    """A permission for the cluster."""
    return permission(operation, ResourceType.CLUSTER, lambda item, context: CLUSTER_NAME)


def cluster_permission_or(operation: Operation, otherwise: Need[T]) -> Need[T]:
    """A permission for the cluster, or else another need. If both are missing, the error is that of the other need."""

    def need(message: type) -> Check[T]:
        check_otherwise = otherwise(message)

        def check(item: T, context: RequestContext, access: Access) -> ErrorCode:
            if access.shows(operation, ResourceType.CLUSTER, CLUSTER_NAME):
                return ErrorCode.NONE
            return check_otherwise(item, context, access)

        return check

    return need


def config_permission(operation: Operation) -> Need[_Config]:
    """The permission for a configuration: of its topic or group, or of the cluster for those of brokers."""
    of_cluster = cluster_permission(operation)(object)
    checks: dict[int, Check[_Config]] = {
        ConfigResourceType.TOPIC: permission(operation, ResourceType.TOPIC, _resource_name)(object),
        ConfigResourceType.GROUP: permission(operation, ResourceType.GROUP, _resource_name)(object),
        ConfigResourceType.BROKER: of_cluster,
        ConfigResourceType.BROKER_LOGGER: of_cluster,
        ConfigResourceType.CLIENT_METRICS: of_cluster,
    }

    def check(item: _Config, context: RequestContext, access: Access) -> ErrorCode:
        check_one = checks.get(item.resource_type)
        return ErrorCode.NONE if check_one is None else check_one(item, context, access)

    return checked_by(check)


def checked_by(check: Check[T]) -> Need[T]:
    """A need that is checked by a function of the request or item."""
    return lambda message: check


def _resource_name(item: _Config, context: RequestContext) -> str:
    return item.resource_name


def name_in(message: type, kind: ResourceType) -> NameOf[object]:
    """Returns a function that finds the name of a resource of this type in messages of a class."""
    if message is str:
        return lambda item, context: str(item)
    names = {field.name for field in schema_of(message).fields}
    if kind == ResourceType.TOPIC and "topic_id" in names:
        return cast("NameOf[object]", topic_name)
    get: Callable[[object], str] = attrgetter(next(name for name in _NAMES[kind] if name in names))
    return lambda item, context: get(item)


def topic_name(item: _Topic, context: RequestContext) -> str | None:
    """The name of an item that names its topic, or has its id. None for an unknown id, which the handler refuses."""
    if item.topic_id == ZERO_UUID:
        return None if not item.name and _has_ids(item, context.version) else str(item.name)
    return context.services.image.topic_names.get(item.topic_id)


def _has_ids(item: _Topic, version: int) -> bool:
    """Whether requests of this version name topics by their ids."""
    return any(
        field.name == "topic_id" and version in field.versions for field in schema_of(type(item)).fields
    )


# Guards


def request_needs(
    api: TypedApi[Q, A],
    need: Need[Q],
    *,
    refuse: Callable[[Q, ErrorCode, RequestContext], A] | None = None,
    has_rows: bool = False,
    fields: Fields = NO_FIELDS,
) -> Guard[Q, A]:
    """Refuses a request without permission.

    If `has_rows`, the refusal has rows besides its error; `fields` are other fields that Kafka sets in the refusal.
    `refuse` makes a refusal that does not follow from the schemas.
    """

    def guard(handle: Handle[Q, A]) -> Handle[Q, A]:
        check = need(api.request)

        async def guarded(request: Q, context: RequestContext) -> A:
            code = check(request, context, context.access)
            if code == ErrorCode.NONE:
                return await handle(request, context)
            if refuse is not None:
                return refuse(request, code, context)
            return refused(api, request, code, context.version, fields, has_rows=has_rows)

        return guarded

    return guard


def items_need(
    api: TypedApi[Q, A],
    need: Need[T],
    *,
    version: int | None = None,
    row: Callable[[T, ErrorCode, RequestContext], object] | None = None,
    handles_none: bool = False,
    fields: Fields = NO_FIELDS,
) -> Guard[Q, A]:
    """Takes the items without permission out of the request, and adds their rows to the response.

    The lists of items and rows are those in `version` of the messages, by default in the newest version. `fields` are
    the fields that Kafka's rows have besides names and error; `row` makes a row that does not follow from the schemas.
    If every item is refused, the handler is not called, because an empty list often means all items. A handler that
    `handles_none` is called, so that the response has the errors of the whole request.
    """
    number = api.versions.max if version is None else version

    def guard(handle: Handle[Q, A]) -> Handle[Q, A]:
        items, rows = items_in(api.request, number), rows_in(api.response, number)
        check: Check[T] = need(class_in(items))
        derived = row_between(items, rows, number, fields)
        refuse = row or (lambda item, code, context: derived(item, code))
        respond: Callable[..., A] = api.response

        async def guarded(request: Q, context: RequestContext) -> A:
            asked: list[T] = getattr(request, items.name)
            codes = await codes_of(asked, check, context)
            if not any(codes):
                return await handle(request, context)
            denied = [
                refuse(item, code, context) for item, code in zip(asked, codes, strict=True) if code != 0
            ]
            allowed = [item for item, code in zip(asked, codes, strict=True) if code == 0]
            if not allowed and not handles_none:
                return respond(**{rows.name: denied})
            setattr(request, items.name, allowed)
            answer = await handle(request, context)
            if getattr(answer, "error_code", ErrorCode.NONE) != ErrorCode.NONE:
                return answer  # the whole request failed
            setattr(answer, rows.name, [*getattr(answer, rows.name), *denied])
            return answer

        return guarded

    return guard


async def codes_of(asked: Collection[T] | None, check: Check[T], context: RequestContext) -> list[ErrorCode]:
    """The error code of each item.

    Thousands of items are checked with pauses, while the connection's later requests wait.
    """
    if not asked:
        return []
    access = context.access
    if len(asked) <= MAX_ITEMS_WITHOUT_PAUSE:
        return [check(item, context, access) for item in asked]
    with held(context.session):
        codes = [check(item, context, access) async for item in paced(asked, context.services.env.clock)]
        # The process may have been suspended meanwhile, and another broker may lead the partitions now.
        context.services.image_follower.check_session()
        return codes


def rows_need(
    api: TypedApi[Q, A], operation: Operation, kind: ResourceType, *, version: int | None = None
) -> Guard[Q, A]:
    """Removes the rows that the client may not see. `version` has the list of rows; by default it is the newest."""
    rows = api.versions.max if version is None else version

    def guard(handle: Handle[Q, A]) -> Handle[Q, A]:
        listed = rows_in(api.response, rows)
        name_of = name_in(class_in(listed), kind)

        async def guarded(request: Q, context: RequestContext) -> A:
            access = context.access
            answer = await handle(request, context)
            found: list[object] = getattr(answer, listed.name)
            are_shown = await each_alone(
                found, lambda row: access.shows(operation, kind, name_of(row, context) or ""), context
            )
            setattr(answer, listed.name, list(compress(found, are_shown)))
            return answer

        return guarded

    return guard


def hides(hide: Callable[[A, Access], None]) -> Guard[Q, A]:
    """Calls `hide`, which removes from the response what the client may not see."""

    def guard(handle: Handle[Q, A]) -> Handle[Q, A]:
        async def guarded(request: Q, context: RequestContext) -> A:
            access = context.access
            answer = await handle(request, context)
            hide(answer, access)
            return answer

        return guarded

    return guard


def all_of(first: Guard[Q, A], *others: Guard[Q, A]) -> Guard[Q, A]:
    """Applies several guards, one after the other."""
    if not others:
        return first
    rest = all_of(*others)
    return lambda handle: first(rest(handle))


def by_version(since: int, newer: Guard[Q, A], older: Guard[Q, A]) -> Guard[Q, A]:
    """Uses `newer` for requests from version `since` on, and `older` for earlier versions."""

    def guard(handle: Handle[Q, A]) -> Handle[Q, A]:
        by_newer, by_older = newer(handle), older(handle)

        def guarded(request: Q, context: RequestContext) -> Coroutine[object, object, A]:
            return (by_newer if context.version >= since else by_older)(request, context)

        return guarded

    return guard
