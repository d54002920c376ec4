"""The time limit of a public call: one deadline, made where the call begins, that no wait inside it outlasts.

Keeps true:  A coroutine inside `limited` ends at its limit, whether it waits for a lock, a connection or an answer.
             A limit inside another one never ends later than the outer one.
How:         The deadline cancels the coroutine. A part that collects results item by item reads `deadline`, stops by
             itself, and returns what it has: the cancellation comes `_GRACE_S` later.
Leaves:      what several calls share (attempts to connect, refreshes of metadata) to tasks of their own, which go on
             when a call ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import Context, ContextVar, copy_context

from felice.client.error import KafkaError, failure

_GRACE_S = 0.05

# When the current call ends, and when it is cancelled, in the event loop's time.
_END: ContextVar[tuple[float, float] | None] = ContextVar("END", default=None)
# An inner block is cancelled before the outer one, which may have results of its own.
_BEFORE_OUTER_S = 0.005


def deadline() -> float | None:
    """Return the end of the current call in the event loop's time; None without a limit."""
    current = _END.get()
    return None if current is None else current[0]


def time_left_s(limit_s: float) -> float:
    """Return `limit_s`, or the rest of the current call's time if that is shorter."""
    end = deadline()
    return limit_s if end is None else min(limit_s, max(0.0, end - asyncio.get_running_loop().time()))


def without_limit() -> Context:
    """Return the current context without its limit, for a task that goes on when the current call ends."""
    context = copy_context()
    context.run(_END.set, None)
    return context


@asynccontextmanager
async def limited(
    limit_s: float, what: str = "no answer", code: int = KafkaError._TIMED_OUT, hint: str = ""
) -> AsyncIterator[None]:
    """End the block after `limit_s` seconds: it raises `KafkaException` with `code`: `what` in so many seconds."""
    outer = _END.get()
    end = asyncio.get_running_loop().time() + max(0.0, limit_s)
    cancelled_at = end + _GRACE_S
    if outer is not None:
        end, cancelled_at = min(end, outer[0]), min(cancelled_at, outer[1] - _BEFORE_OUTER_S)
    before = _END.set((end, cancelled_at))
    try:
        async with asyncio.timeout_at(cancelled_at) as timer:
            yield
    except TimeoutError:
        if not timer.expired():
            raise
        raise failure(code, f"{what} in {limit_s:g} s{hint}", retriable=True) from None
    finally:
        _END.reset(before)
