"""Side outputs: functions of an App send records to a topic beside their results.

Keeps true: a record that a function sends is written with the results of the record that is processed, in the same
            batch: exactly once. No node of the topology leads to the topic.
How:        While a task processes a record, a variable of its thread holds the function that sends for this task. A
            `SideOutput` sends with it. So it works in each function, whether the worker imported that function or got
            it with the topology.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from felice.pipelines.streams.record import LATEST_MS, Headers
from felice.pipelines.streams.stores import plain_headers
from felice.pipelines.streams.telling import shown
from felice.pipelines.streams.topology import TopicFormats, TopologyError

Send = Callable[[str, bytes | None, bytes | None, int | None, Headers], None]
"""Takes topic, key, value, timestamp and headers; without a timestamp, the record has that of the current record."""


class _Running(threading.local):
    send: Send | None = None


_running = _Running()


class Sending:
    """A context manager: in its block, the side outputs that are called in this thread send with `send`.

    A task that gets records one by one enters it for each of them. A context manager made of a generator would take
    five times as long.
    """

    __slots__ = ("_before", "_send")

    def __init__(self, send: Send) -> None:
        self._send = send

    def __enter__(self) -> None:
        self._before, _running.send = _running.send, self._send

    def __exit__(self, *error: object) -> None:
        _running.send = self._before


class SideOutput:
    """A topic to which the functions of an App may send records. `App.side_output` makes it."""

    def __init__(self, formats: TopicFormats) -> None:
        self._formats = formats

    def __call__(self, key: Any, value: Any, timestamp: int | None = None, headers: Headers = ()) -> None:
        """Send a record. Without a timestamp it has that of the record that is processed, as the sub-topology read it.

        Raises `FormatError` for what the formats cannot hold, ValueError for a wrong timestamp, and `TopologyError` if
        no record is processed in this thread.
        """
        topic, send = self._formats.topic, _running.send
        if send is None:
            raise TopologyError(
                f"the side output {topic!r} was called, but no record is processed in this thread; call it in "
                "functions of operators"
            )
        if timestamp is not None and not (type(timestamp) is int and 0 <= timestamp <= LATEST_MS):
            raise ValueError(
                f"the side output {topic!r} got the timestamp {shown(timestamp)}; it must be an integer from 0 to "
                f"{LATEST_MS}"
            )
        key_bytes, value_bytes = self._formats.key.encode(key), self._formats.value.encode(value)
        send(topic, key_bytes, value_bytes, timestamp, plain_headers(headers))
