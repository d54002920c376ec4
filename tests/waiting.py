"""Waits for a condition instead of a fixed time, so that a test also passes on a machine under heavy load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Long enough for a machine under heavy load; a test that passes does not wait for it.
LIMIT_S = 60.0
_INTERVAL_S = 0.01


def wait_until(holds: Callable[[], T], timeout_s: float = LIMIT_S, *, describe: Callable[[], str] = str) -> T:
    """Returns `holds()` when it is true. Fails the test after `timeout_s`, with what `describe` tells.

    The condition runs on this thread.
    """
    deadline = time.monotonic() + timeout_s
    while not (found := holds()):
        assert time.monotonic() < deadline, (
            f"{_place(holds)} did not hold within {timeout_s:g} s. {describe()}"
        )
        time.sleep(_INTERVAL_S)
    return found


async def until(holds: Callable[[], object], timeout_s: float = LIMIT_S) -> None:
    """Returns when `holds()` is true, and lets the event loop run meanwhile. Fails the test after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"{_place(holds)} did not hold within {timeout_s:g} s"
        await asyncio.sleep(_INTERVAL_S)


async def let_run(turns: int = 20) -> None:
    """Runs the event loop a few times: for tests that something that only needs the loop does not happen."""
    for _ in range(turns):
        await asyncio.sleep(0)


def _place(holds: Callable[[], object]) -> str:
    code = getattr(holds, "__code__", None)
    return f"the condition at {code.co_filename}:{code.co_firstlineno}" if code else repr(holds)
