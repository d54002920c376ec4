"""Work that sometimes has to ask: generators of steps, which a blocking or an asyncio shell carries out.

Keeps true:  The code that decides contains no I/O and exists once. What it needs from outside, it yields as a step, and
             it receives the step's result at that place, or its exception.
How:         `result = yield Ask("get_version", subject, 3)` in a generator; `run` performs the steps by a function,
             `run_async` by a coroutine function. Work that needs nothing from outside yields nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeAlias, TypeVar

from felice.dataclass import dataclass

T = TypeVar("T")


class Ask:
    """Call a method of the schema registry's client, by name."""

    __slots__ = ("arguments", "keywords", "method")

    def __init__(self, method: str, *arguments: object, **keywords: object) -> None:
        self.method, self.arguments, self.keywords = method, arguments, keywords


class Call:
    """Call a function of the application. The asyncio shell awaits its result if that is awaitable."""

    __slots__ = ("arguments", "function")

    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self.function, self.arguments = function, arguments


class Alone:
    """Carry out these steps while no other thread or task carries out steps of the same owner that must be alone."""

    __slots__ = ("steps",)

    def __init__(self, steps: Generator[Any, Any, Any]) -> None:
        self.steps = steps


@dataclass(frozen=True, slots=True)
class Send:
    """Send one HTTP request. The result is a `Reply` or a `Failed`; it is never raised."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for this time, in seconds."""

    seconds: float


Step: TypeAlias = Ask | Call | Alone | Send | Wait
Steps: TypeAlias = Generator[Step, Any, T]


def run(steps: Steps[T], perform: Callable[[Step], object]) -> T:
    """Carry out the steps, each by `perform`. Returns their result. Raises what they raise."""
    result: object = None
    try:
        step = next(steps)
        while True:
            try:
                result = perform(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


async def run_async(steps: Steps[T], perform: Callable[[Step], Awaitable[object]]) -> T:
    """As `run`, with a coroutine function."""
    result: object = None
    try:
        step = next(steps)
        while True:
            try:
                result = await perform(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value
