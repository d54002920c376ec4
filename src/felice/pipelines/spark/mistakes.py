"""Errors that the author of a query can repair, without the traceback of this package.

Keeps true: an error of the query, or of its cluster, reaches Spark with a single frame of this package in its
            traceback, and its text says what to do. A bug of this package keeps its traceback.
How:        Spark prints the whole traceback of an error that a Python data source raises, and its text last. So every
            function that Spark calls is decorated with `plain_errors`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from felice.client.error import KafkaError, KafkaException, detail_of
from felice.pipelines.errors import PlainError

P = ParamSpec("P")
T = TypeVar("T")


class QueryError(PlainError):
    """The query cannot run. The text says what was requested, and why it is impossible."""


class OptionError(QueryError, ValueError):
    """An option has a wrong value. The text names the option, its value and what was expected."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"option {name!r}: {reason}")
        self.name = name


class ClusterError(QueryError, RuntimeError):
    """The brokers refused a request that the query needs."""


def plain_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Decorates a function that Spark calls: its query errors have no traceback of this package."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except (QueryError, KafkaException) as error:
            raise _plain(error) from None

    return call


def plain_errors_while_read(function: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same for a generator, whose errors are raised during the iteration."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from function(*args, **kwargs)
        except (QueryError, KafkaException) as error:
            raise _plain(error) from None

    return call


def _plain(error: Exception) -> Exception:
    if not isinstance(error, KafkaException):
        return error.with_traceback(None)
    if error.code != KafkaError._ALL_BROKERS_DOWN:
        return ClusterError(error.error.str())
    return ClusterError(
        f"no broker answers: {detail_of(error.error)}. Is one running, and does the option 'kafka.bootstrap.servers' "
        "name it?"
    )
