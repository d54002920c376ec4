"""Structured logs: one event per line with its facts as key=value, or each event as a JSON object."""

from __future__ import annotations

import logging
import sys
from collections import OrderedDict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from logging import _SysExcInfoType

# The attributes of every record. All other attributes are facts that the caller passed as `extra`.
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


# The audit log and the request log have Kafka's names, so that they can be filtered as there.
_LOGGERS = ("felice", "kafka.authorizer.logger", "kafka.request.logger")

# Above DEBUG, lines with the same message are written at most this many times in a minute. The first line of the next
# minute says how many were left out.
MAX_REPEATS = 100
_REPEATS_INTERVAL_S = 60.0
_MAX_MESSAGES = 1_000

# Enough for the longest topic name, its directory and a hint. Texts from clients may be much longer.
MAX_VALUE_CHARACTERS = 1_000
_MAX_TRACEBACK_CHARACTERS = 20_000


class KeyValueFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO felice.server: connection closed peer=127.0.0.1 reason="..."`

    Control characters are escaped, and tracebacks are indented, so that no client can forge a log line.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Appends the facts to the message."""
        facts = (f" {key}={_quoted(value)}" for key, value in facts_of(record).items())
        return _printable(super().formatMessage(record)) + "".join(facts)

    def formatException(self, ei: _SysExcInfoType) -> str:
        """Formats a traceback with indented lines, and cuts a long one."""
        lines = super().formatException(ei)[-_MAX_TRACEBACK_CHARACTERS:].split("\n")
        return "\n".join(f"    {_printable(line)}" for line in lines)


class _Shortened(logging.Filter):
    """Limits the length of a line in both formats."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if len(message) > MAX_VALUE_CHARACTERS:
            record.msg, record.args = _shortened(message), None
        for key, value in facts_of(record).items():
            if not isinstance(value, (int, float)) and len(text := str(value)) > MAX_VALUE_CHARACTERS:
                setattr(record, key, _shortened(text))
        return True


class _Repeats(logging.Filter):
    """Leaves out lines of one message that come too often; lines with other facts count as the same message."""

    def __init__(self) -> None:
        super().__init__()
        # By logger and message: the beginning of the interval, and the number of lines since then.
        self._seen: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written; adds the number of lines that were left out before it."""
        if record.levelno <= logging.DEBUG:
            return True
        key = record.name, str(record.msg)
        begun_s, count = self._seen.pop(key, (record.created, 0))
        # The clock may have been set back.
        if not 0 <= record.created - begun_s < _REPEATS_INTERVAL_S:
            if count > MAX_REPEATS:
                record.left_out = count - MAX_REPEATS
            begun_s, count = record.created, 0
        self._seen[key] = begun_s, count + 1
        if len(self._seen) > _MAX_MESSAGES:
            self._seen.popitem(last=False)
        return count < MAX_REPEATS


def _shortened(text: str) -> str:
    return f"{text[:MAX_VALUE_CHARACTERS]}... ({len(text)} characters)"


def facts_of(record: logging.LogRecord) -> dict[str, object]:
    """Returns the facts that the caller passed as `extra`, by name."""
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _quoted(value: object) -> str:
    text = str(value)
    if text and text.isprintable() and not any(character in text for character in ' "='):
        return text
    return '"' + _printable(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _printable(text: str) -> str:
    """Escapes characters that move the cursor, begin a line or change colours."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def configure_logs(*, as_json: bool = False, level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Sends Felice's logs, with the audit log of its authorizer, to `stream` (by default standard error)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_json_formatter() if as_json else _utc(KeyValueFormatter()))
    handler.addFilter(_Repeats())
    handler.addFilter(_Shortened())
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


def _json_formatter() -> logging.Formatter:
    from pythonjsonlogger.json import JsonFormatter

    formatter: logging.Formatter = JsonFormatter(
        "%(asctime)s %(levelname)s %(name)s %(message)s",
        rename_fields={"asctime": "time", "levelname": "level"},
    )
    return _utc(formatter)


def _utc(formatter: logging.Formatter) -> logging.Formatter:
    """Formats times as `2026-01-31T12:00:00.000Z`."""
    formatter.converter = lambda seconds: datetime.fromtimestamp(seconds or 0, UTC).timetuple()
    formatter.default_time_format = "%Y-%m-%dT%H:%M:%S"
    formatter.default_msec_format = "%s.%03dZ"
    return formatter
