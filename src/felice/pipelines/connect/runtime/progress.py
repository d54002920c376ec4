"""What a running task tells of its work: how many records, how far behind, the last error, and its log lines."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from felice.pipelines.connect.storage.json_records import member

_LINES, _CHARACTERS = 1000, 262_144
"""The lines that a worker keeps of a task, and their characters."""
_PENDING = 200
"""The lines that wait in a task to be told; older ones are dropped."""
_LINE_CHARACTERS = 4000
_RATE_S = 5.0
"""The time over which records per second are counted."""


class Progress:
    """What a worker knows of one task, since the task was started. Only the event loop uses it."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        self._lag: int | None = None
        self._failed = 0
        self._error: Any = None
        self._lines: deque[tuple[int, str]] = deque()
        self._characters = 0
        self._last = 0

    def take(self, message: dict[str, Any]) -> None:
        """Takes what the task tells. Raises `ValueError` and `DataError` for another form."""
        now_s = time.monotonic()
        self._counts.append((now_s, member(message, "records", int)))
        while len(self._counts) > 2 and self._counts[1][0] < now_s - _RATE_S:
            self._counts.popleft()
        self._failed = member(message, "failed", int)
        lag = message.get("lag")
        self._lag = lag if isinstance(lag, int) else None
        if isinstance(message.get("error"), dict):
            self._error = message["error"]

    def add_lines(self, lines: Sequence[Any]) -> None:
        """Takes lines of the task's log."""
        for line in lines:
            self._last += 1
            text = str(line)[:_LINE_CHARACTERS]
            self._lines.append((self._last, text))
            self._characters += len(text)
            while len(self._lines) > _LINES or self._characters > _CHARACTERS:
                self._characters -= len(self._lines.popleft()[1])

    def lines(self, after: int) -> list[dict[str, Any]]:
        """The lines that follow the one with this number."""
        return [{"number": number, "line": line} for number, line in self._lines if number > after]

    def to_json(self) -> dict[str, Any]:
        """The numbers: `records_per_second` is that of the last seconds, and 0 when the task tells nothing more."""
        (first_s, first), (last_s, last) = self._counts[0], self._counts[-1]
        is_old = time.monotonic() - last_s > _RATE_S
        rate = 0.0 if is_old or last_s == first_s else (last - first) / (last_s - first_s)
        return {
            "records": last,
            "records_per_second": round(rate, 1),
            "lag": self._lag,
            "failed_records": self._failed,
            "last_error": self._error,
        }


class LogLines(logging.Handler):
    """Keeps the log lines of a process until they are told to its worker."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._pending: deque[str] = deque(maxlen=_PENDING)
        self._guard = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a line."""
        try:
            text = self.format(record)[:_LINE_CHARACTERS]
        except Exception:
            return  # a line that cannot be formatted is reported by the other handlers
        with self._guard:
            self._pending.append(text)

    def take(self) -> list[str]:
        """The lines since the last call."""
        with self._guard:
            found = list(self._pending)
            self._pending.clear()
        return found


@contextmanager
def kept_lines() -> Iterator[LogLines]:
    """Keeps the lines of all loggers of this process: of Connect from INFO on, of others as they are set."""
    lines, root, connect = LogLines(), logging.getLogger(), logging.getLogger("felice.connect")
    level = connect.level
    root.addHandler(lines)
    if level == logging.NOTSET:
        connect.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        connect.setLevel(level)
        root.removeHandler(lines)
