"""The mechanism of authorisation: needs of a request or of its items, and guards that check them.

A `Need` returns the error of a request or an item that lacks a permission, NONE otherwise. A `Guard` stands before a
handler: `whole` refuses the request, `each` refuses items, `shown` leaves rows out of the response, `both` combines two
guards. `codes_of` is for guards that treat refused items in their own way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from itertools import compress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from felice.protocol.errors import ErrorCode
from felice.security.acl import CLUSTER_NAME, Operation, ResourceType
from felice.server.flow.pace import MAX_ITEMS_WITHOUT_PAUSE, held, paced
from felice.server.requests.large_answers import each_alone
from felice.server.security.access_control import Access

if TYPE_CHECKING:
    from felice.server.context import RequestContext

Handle: TypeAlias = Callable[[Any, Any], Coroutine[Any, Any, Any]]
Guard: TypeAlias = "Callable[[Any, RequestContext, Handle], Coroutine[Any, Any, Any]]"
Need: TypeAlias = "Callable[[Any, RequestContext, Access], ErrorCode]"
"""Called with a request or one of its items."""
Refuse: TypeAlias = "Callable[[Any, ErrorCode, RequestContext], Any]"
"""Builds the refusal of a request, or the row of a refused item."""
NameOf: TypeAlias = "Callable[[Any, RequestContext], str | None]"
"""The name of the resource that a request or item is about. None if nothing is needed: the handler refuses it."""

DENIED_CODES = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


# Needs


def need(operation: Operation, kind: ResourceType, name: str | NameOf) -> Need:
    """A permission for a resource. `name` is an attribute of the request or item, or a function of it."""
    name_of: NameOf = _attribute(name) if isinstance(name, str) else name
    code = DENIED_CODES[kind]

    def check(item: Any, context: RequestContext, access: Access) -> ErrorCode:
        found = name_of(item, context)
        return ErrorCode.NONE if found is None or access.allows(operation, kind, found) else code

    return check


def cluster(operation: Operation) -> Need:
    """A permission for the cluster."""
    return need(operation, ResourceType.CLUSTER, lambda item, context: CLUSTER_NAME)


def itself(item: Any, context: RequestContext) -> str:
    """The name of an item that is a name."""
    return str(item)


def _attribute(name: str) -> NameOf:
    get = attrgetter(name)
    return lambda item, context: get(item)


def any_of(first: Operation, otherwise: Need) -> Need:
    """A permission for the cluster, or else another need. If both are missing, the error is that of the other need."""

    def check(item: Any, context: RequestContext, access: Access) -> ErrorCode:
        if access.shows(first, ResourceType.CLUSTER, CLUSTER_NAME):
            return ErrorCode.NONE
        return otherwise(item, context, access)

    return check


# Guards


def whole(needed: Need, refuse: Refuse) -> Guard:
    """Refuses the request unless it has the permission."""

    async def guard(request: Any, context: RequestContext, handle: Handle) -> Any:
        code = needed(request, context, context.access)
        return await handle(request, context) if code == ErrorCode.NONE else refuse(request, code, context)

    return guard


def each(
    needed: Need,
    items: str,
    rows: str,
    refuse: Refuse,
    response: type,
    *,
    handles_none: bool = False,
) -> Guard:
    """Takes the items without permission out of the request, and adds their rows to the response.

    `items` and `rows` are the attributes of the request and of the response. If every item is refused, the handler is
    not called, because an empty list often means all; unless it `handles_none`, so that the response has the errors
    of the whole request.
    """

    async def guard(request: Any, context: RequestContext, handle: Handle) -> Any:
        asked = getattr(request, items)
        codes = await codes_of(asked, needed, context)
        if not any(codes):
            return await handle(request, context)
        denied = [refuse(item, code, context) for item, code in zip(asked, codes, strict=True) if code != 0]
        allowed = [item for item, code in zip(asked, codes, strict=True) if code == 0]
        if not allowed and not handles_none:
            return response(**{rows: denied})
        setattr(request, items, allowed)
        return _with_rows(await handle(request, context), rows, denied)

    return guard


async def codes_of(asked: Collection[Any] | None, needed: Need, context: RequestContext) -> list[ErrorCode]:
    """The error code of each item.

    Thousands of items are checked with pauses, while the connection's later requests wait.
    """
    if not asked:
        return []
    access = context.access
    if len(asked) <= MAX_ITEMS_WITHOUT_PAUSE:
        return [needed(item, context, access) for item in asked]
    with held(context.session):
        codes = [needed(item, context, access) async for item in paced(asked, context.services.env.clock)]
        # The process may have been suspended meanwhile, and another broker may lead the partitions now.
        context.services.image_follower.check_session()
        return codes


def _with_rows(answer: Any, rows: str, denied: list[Any]) -> Any:
    if getattr(answer, "error_code", ErrorCode.NONE) != ErrorCode.NONE:
        return answer  # the whole request failed
    setattr(answer, rows, [*getattr(answer, rows), *denied])
    return answer


def shown(rows: str, is_shown: Callable[[Any, Access], bool]) -> Guard:
    """Leaves out the rows that the client may not see."""

    async def guard(request: Any, context: RequestContext, handle: Handle) -> Any:
        access = context.access
        answer = await handle(request, context)
        found = getattr(answer, rows)
        are_shown = await each_alone(found, lambda row: is_shown(row, access), context)
        setattr(answer, rows, list(compress(found, are_shown)))
        return answer

    return guard


def both(first: Guard, second: Guard) -> Guard:
    """Checks with the first guard, then with the second."""

    def guard(request: Any, context: RequestContext, handle: Handle) -> Coroutine[Any, Any, Any]:
        def inner(request: Any, context: RequestContext) -> Coroutine[Any, Any, Any]:
            return second(request, context, handle)

        return first(request, context, inner)

    return guard


def open_to_all(request: Any, context: RequestContext, handle: Handle) -> Coroutine[Any, Any, Any]:
    """The guard of APIs that need no permission."""
    return handle(request, context)


def in_handler(request: Any, context: RequestContext, handle: Handle) -> Coroutine[Any, Any, Any]:
    """The guard of APIs whose handlers check permissions themselves, with `context.access`."""
    return handle(request, context)
