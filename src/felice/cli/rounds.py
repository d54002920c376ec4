"""Asks the cluster about many items, and goes on without those that no broker can answer for now.

Keeps true: an item that can be answered waits for no other for longer than `FIRST_ROUND_S`. Every item is yielded
            once, with its result or its error. An item without a leader, or whose broker refuses connections, is given
            up after `SECOND_ROUND_S` more; one without any answer, which may come from a busy broker, later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from felice.client import KafkaException

K = TypeVar("K")
T = TypeVar("T")

FIRST_ROUND_S = 2.0
SECOND_ROUND_S = 4.0
LAST_ROUND_S = 54.0


def ask_in_rounds(
    items: Iterable[K], ask: Callable[[list[K], float], Mapping[K, Future[T]]]
) -> Iterator[tuple[K, T | KafkaException]]:
    """Yields each item with its result, or with its error. `ask` gets items and a time limit in seconds.

    Raises `KafkaException` if no broker can be reached.
    """
    from felice.client import KafkaError, KafkaException

    left = list(items)
    for limit_s in (FIRST_ROUND_S, SECOND_ROUND_S, LAST_ROUND_S):
        again = []
        for item, future in (ask(left, limit_s) if left else {}).items():
            try:
                yield item, future.result()
            except KafkaException as error:
                if error.code == KafkaError._ALL_BROKERS_DOWN:
                    raise
                may_come = error.error.retriable() or error.code == KafkaError._TIMED_OUT
                if limit_s == SECOND_ROUND_S:
                    may_come = error.code == KafkaError._TIMED_OUT
                if may_come and limit_s != LAST_ROUND_S:
                    again.append(item)
                else:
                    yield item, error
        left = again


def tell_left_out(what: str, error: KafkaException) -> None:
    """Says on standard error what is missing in the output, and why."""
    from felice.cli.faults import describe_kafka

    click.echo(f"{what}: {describe_kafka(error)}", err=True)
