"""The errors of connectors, converters and transformations."""

from __future__ import annotations

from felice.pipelines.errors import PlainError


class ConnectError(PlainError):
    """A task cannot go on. The text says why."""


def short_trace(error: ConnectError) -> str:
    """The trace of an error whose place in the code says nothing to a user."""
    return f"{type(error).__name__}: {error}\n"


class RetriableError(ConnectError):
    """What failed may succeed when it is tried again."""


class DataError(ConnectError):
    """A value that a schema, a converter or a transformation cannot have."""


class ConfigError(ConnectError):
    """A configuration that cannot be used; the text is Kafka's."""


def one_line(error: BaseException) -> str:
    """An error's own text on one line, at most 300 characters; without one, the name of its class."""
    return " ".join(str(error).split())[:300] or type(error).__name__
