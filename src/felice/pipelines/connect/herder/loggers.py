"""The levels of this worker's loggers, by the names of Python's loggers and of Kafka's levels."""

from __future__ import annotations

import logging
import time

from felice.dataclass import dataclass

ROOT = "root"
LEVELS = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG - 5,
    "ALL": logging.DEBUG - 5,
}
"""The levels of Kafka's log, and numbers of Python's for them."""

_changed_ms: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class Level:
    """The level of a logger, and when it was changed here, in milliseconds since 1970."""

    level: str
    last_modified_ms: int | None


def levels() -> dict[str, Level]:
    """The loggers that have a level of their own."""
    names = [name for name in logging.root.manager.loggerDict if logging.getLogger(name).level]
    return {name: level_of(name) for name in sorted([ROOT, *names])}


def is_known(name: str) -> bool:
    """Whether there is such a logger."""
    return name == ROOT or name in logging.root.manager.loggerDict


def count() -> int:
    """The number of loggers."""
    return len(logging.root.manager.loggerDict)


def level_of(name: str) -> Level:
    """The level that counts for a logger."""
    number = _logger(name).getEffectiveLevel()
    known = [text for text, one in LEVELS.items() if one >= number]
    return Level(min(known, key=lambda text: LEVELS[text]) if known else "OFF", _changed_ms.get(name))


def set_level(name: str, level: str) -> list[str]:
    """Sets the level of a logger and of those below it that have one. Returns their names."""
    below = [
        one
        for one in logging.root.manager.loggerDict
        if one.startswith(f"{name}.") and logging.getLogger(one).level
    ]
    changed = [name, *sorted(below)]
    for one in changed:
        _logger(one).setLevel(LEVELS[level])
        _changed_ms[one] = int(time.time() * 1000)
    return changed


def follow_level(name: str, level: str) -> None:
    """Sets the level that another worker asked for. A level that is not known changes nothing."""
    if level in LEVELS:
        set_level(name, level)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
