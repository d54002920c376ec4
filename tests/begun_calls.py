"""Coroutines that a test begins itself, as a session begins its handlers."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from felice.env.begun import Rest, begin

T = TypeVar("T")


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that does not wait."""
    found = begin(coroutine)
    assert not isinstance(found, Rest), "it waits"
    return found


def under_way(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that does not wait; else the task that runs what is left of it."""
    found = begin(coroutine)
    return asyncio.get_running_loop().create_task(found) if isinstance(found, Rest) else found


def as_handler(handle: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Coroutine[Any, Any, Any]]:
    """A handler that a test wrote as a function, which returns the answer or an awaitable of it."""

    async def handler(request: Any, context: Any) -> Any:
        answer = handle(request, context)
        return await answer if inspect.isawaitable(answer) else answer

    return handler
