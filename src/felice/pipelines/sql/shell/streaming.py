"""What the stream of a query shows, and how a query is ended from outside: by Ctrl-C, or when its time is over."""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from felice.pipelines.sql.shell.output import Output
from felice.pipelines.sql.shell.rows import Message, RowTable, columns_of, messages_of

_TICK_S = 0.25


class Stream(Protocol):
    """Shows the lines of an answer."""

    rows: int
    """How many rows or records it has shown."""

    def show(self, line: str, limit: int | None) -> None:
        """Shows a line, but no more than `limit` rows."""
        ...


class Lines:
    """The text that PRINT gives."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.rows = 0

    def show(self, line: str, limit: int | None) -> None:
        """Shows a line; in JSON as a text."""
        self._output.show(json.dumps(line, ensure_ascii=False) if self._output.is_json else line)
        # What comes before the records says which formats were found.
        self.rows += line.startswith("rowtime:")


class Rows:
    """The rows of a query."""

    def __init__(self, output: Output, column_width: int, wraps: bool) -> None:
        self._output, self._column_width, self._wraps = output, column_width, wraps
        self._table: RowTable | None = None
        self.rows = 0

    def show(self, line: str, limit: int | None) -> None:
        """Shows the messages of a line."""
        for message in messages_of(line):
            if limit is not None and self.rows >= limit:
                return
            self.rows += "row" in message.content
            if self._output.is_json:
                self._output.show(message.text)
            else:
                self._show(message)

    def _show(self, message: Message) -> None:
        content = message.content
        if isinstance(header := content.get("header"), dict):
            self._table = self._made(columns_of(str(header.get("schema", ""))))
            self._output.show(self._table.header())
        elif isinstance(row := content.get("row"), dict):
            values = row.get("columns") or []
            table = self._table or self._made([""] * len(values))
            self._output.show(table.row(values, is_tombstone=bool(row.get("tombstone"))))
        elif final := content.get("finalMessage"):
            self._output.tell(str(final))

    def _made(self, columns: list[str]) -> RowTable:
        return RowTable(columns, self._output.width, self._column_width, wraps=self._wraps)


class _TimeOver(BaseException):
    """A query has run for as long as it may. No handler of errors takes it for one of theirs."""


@contextmanager
def interruptible(seconds: float | None = None) -> Iterator[None]:
    """Ends the block, without an error, after this many seconds or at Ctrl-C. Works only in the main thread.

    Python runs the handler of a signal between two of its instructions. One that comes just before a read begins would
    be handled only when data comes, perhaps hours later; the timer ends the read, and Python begins it again.
    """
    end_at = math.inf if seconds is None else time.monotonic() + seconds

    def tick(number: int, frame: FrameType | None) -> None:
        if time.monotonic() >= end_at:
            raise _TimeOver

    before = signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, _TICK_S if seconds is None else min(seconds, _TICK_S), _TICK_S)
    try:
        yield
    except _TimeOver:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
