"""Threads that load or close the partitions of a log directory, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class _Map(Protocol):
    """The signature of `map`."""

    def __call__(self, function: Callable[..., T_co], /, *arguments: Iterable[object]) -> Iterable[T_co]: ...


@contextmanager
def workers(count: int, name: str) -> Iterator[_Map]:
    """A `map` that runs on `count` threads, or on the caller's thread if `count` is 1: simulations have no threads."""
    if count <= 1:
        yield lambda function, *arguments: map(function, *arguments)
        return
    with ThreadPoolExecutor(count, thread_name_prefix=name) as pool:
        yield pool.map
