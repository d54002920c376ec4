"""The levels of the broker's loggers, which clients see and change as the resource BROKER_LOGGER (KIP-412).

Keeps true: a change applies at once, to all brokers of this process, and lasts until the process ends.
How:        `root` stands for all loggers without a level of their own; a logger inherits the level of the part of its
            name before the last dot.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from felice.config import shortened
from felice.controller.config_changes import ChangeKind, ConfigChange
from felice.protocol.errors import ApiError, ErrorCode

ROOT = "root"
TRACE = 5

_FELICE = "felice"
LOGGERS = (
    ROOT,
    "felice.controller",
    "felice.coordinator",
    "felice.env",
    "felice.log",
    "felice.metadata",
    "felice.replication",
    "felice.server",
    "kafka.authorizer.logger",
    "kafka.request.logger",
)
"""Names are stable: operators configure them."""

_LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}


def levels() -> dict[str, str]:
    """The level in force of each logger."""
    return {name: _text(_logger(name).getEffectiveLevel()) for name in LOGGERS}


def change_levels(changes: Sequence[ConfigChange], *, validate_only: bool) -> None:
    """Sets levels, or lets loggers inherit them again. Raises `ApiError` without a change if one is wrong."""
    wanted = {change.name: _wanted(change) for change in changes}
    if len(wanted) != len(changes):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if not validate_only:
        _apply(wanted)


def _apply(wanted: Mapping[str, int]) -> None:
    before = _logger(ROOT).getEffectiveLevel()
    for name, level in wanted.items():
        _logger(name).setLevel(level)
    after = _logger(ROOT).getEffectiveLevel()
    for name in LOGGERS:
        # Kafka's names do not begin with Felice's, so they inherit by hand.
        logger = _logger(name)
        if logger is _logger(ROOT) or name.startswith(_FELICE):
            continue
        if logger.level == logging.NOTSET or (logger.level == before and name not in wanted):
            logger.setLevel(after)


def _wanted(change: ConfigChange) -> int:
    if change.name not in LOGGERS:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Logger {shortened(change.name)} does not exist!")
    if change.kind == ChangeKind.DELETE:
        if change.name == ROOT:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
            )
        return logging.NOTSET
    if change.kind != ChangeKind.SET:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{_operation(change.kind)} is not allowed for the BROKER_LOGGER resource",
        )
    if change.value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
    level = _LEVELS.get(change.value.upper())
    if level is None:
        known = ", ".join(_LEVELS)
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {change.name} to {shortened(change.value)}; there are {known}",
        )
    return level


def _operation(kind: int) -> str:
    return f"{ChangeKind(kind).name} operation" if kind in set(ChangeKind) else f"Operation {kind}"


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(_FELICE if name == ROOT else name)


def _text(level: int) -> str:
    """The name of the level, or of the next one above it."""
    return next((name for name, value in reversed(_LEVELS.items()) if value >= level), "FATAL")
