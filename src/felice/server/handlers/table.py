"""The handler of each API: the `handle` of the module with the API's name.

ApiVersions offers clients every API of `felice.protocol.api` but those in `WITHOUT_HANDLER`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from felice.protocol.api import API, Api

if TYPE_CHECKING:
    from felice.server.context import RequestContext

# The key of an API decides the types of its request and response, so no single type can be given here.
Handle = Callable[[Any, "RequestContext"], Coroutine[Any, Any, Any]]

WITHOUT_HANDLER: frozenset[Api] = frozenset(
    {
        API.SHARE_GROUP_HEARTBEAT,
        API.SHARE_GROUP_DESCRIBE,
        API.SHARE_FETCH,
        API.SHARE_ACKNOWLEDGE,
        API.INITIALIZE_SHARE_GROUP_STATE,
        API.READ_SHARE_GROUP_STATE,
        API.WRITE_SHARE_GROUP_STATE,
        API.DELETE_SHARE_GROUP_STATE,
        API.READ_SHARE_GROUP_STATE_SUMMARY,
        API.STREAMS_GROUP_HEARTBEAT,
        API.STREAMS_GROUP_DESCRIBE,
        API.DESCRIBE_SHARE_GROUP_OFFSETS,
        API.ALTER_SHARE_GROUP_OFFSETS,
        API.DELETE_SHARE_GROUP_OFFSETS,
    }
)
"""APIs whose messages are declared, but which this broker does not serve yet: it has no handler for them."""

OFFERED: dict[int, Api] = {key: api for key, api in API.by_key.items() if api not in WITHOUT_HANDLER}


class Handlers(dict[int, Handle]):
    """Handlers by API key. One is imported when it is first called: most brokers never need most of them."""

    def __missing__(self, api_key: int) -> Handle:
        handle: Handle = _module(api_key).handle
        self[api_key] = handle
        return handle


class GuardedHandlers(dict[int, Handle]):
    """Handlers wrapped in the guards of their modules. A handler without a guard raises AttributeError."""

    def __init__(self, handlers: Mapping[int, Handle]) -> None:
        super().__init__()
        self._handlers = handlers

    def __missing__(self, api_key: int) -> Handle:
        guard: Callable[[Handle], Handle] = _module(api_key).guard
        self[api_key] = guarded = guard(self._handlers[api_key])
        return guarded


def _module(api_key: int) -> ModuleType:
    return import_module(f"felice.server.handlers.{OFFERED[api_key].module}")
