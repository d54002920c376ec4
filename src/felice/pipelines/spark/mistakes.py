"""What a person can mend about a query, told without the way that it took through our code.

Keeps true: an error of the query, or of its cluster, that leaves this package for Spark has one frame of ours in its
            traceback, and its text says what to do. What is a fault of ours keeps its traceback.
How:        Spark prints the whole traceback of what a Python data source raises, and the reason last; every function
            that Spark calls is `told_plainly`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from felice.client.error import KafkaError, KafkaException

P = ParamSpec("P")
T = TypeVar("T")


class QueryError(Exception):
    """The text is the whole story: what was asked, and why it cannot be."""


class OptionError(QueryError, ValueError):
    """An option that cannot be honoured: which one, what came, what was expected."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"option {name!r}: {reason}")
        self.name = name


class ClusterError(QueryError, RuntimeError):
    """The brokers could not do what the query needs of them."""


def told_plainly(function: Callable[P, T]) -> Callable[P, T]:
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except (QueryError, KafkaException) as error:
            raise _plain(error) from None

    return call


def told_plainly_while_read(function: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same of a generator, which fails while it is gone through."""

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
    text = error.error.str()
    if error.code == KafkaError._ALL_BROKERS_DOWN:
        for layer in ("Local: All broker connections are down: ", "Local: Broker transport failure: "):
            text = text.replace(layer, "")
        return ClusterError(
            f"no broker answers: {text}. Is one running, and does the option 'kafka.bootstrap.servers' name it?"
        )
    return ClusterError(text)
