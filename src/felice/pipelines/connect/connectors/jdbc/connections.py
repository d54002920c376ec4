"""Connections to databases: from the URL of a JDBC driver to an engine of SQLAlchemy.

Keeps true:  neither a password nor a URL that may hold one stands in an error or a log line.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import sqlalchemy
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError

from felice.pipelines.connect.model.errors import ConfigError, ConnectError

T = TypeVar("T")

_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    "sqlite": "sqlite",
}
"""SQLAlchemy's name for each kind of database that a JDBC URL names."""


def database_url(options: Mapping[str, Any]) -> URL:
    """The URL for SQLAlchemy. Raises `ConfigError` for one that cannot be used."""
    text: str = options["connection.url"]
    try:
        url = _of_jdbc(text.removeprefix("jdbc:")) if text.startswith("jdbc:") else sqlalchemy.make_url(text)
    except (SQLAlchemyError, ValueError):
        raise ConfigError(
            "Invalid value for configuration connection.url: it is no URL of a database"
        ) from None
    if options["connection.user"] is not None:
        url = url.set(username=options["connection.user"])
    if options["connection.password"] is not None:
        url = url.set(password=options["connection.password"].value)
    return url


def _of_jdbc(text: str) -> URL:
    kind, _, rest = text.partition(":")
    if kind not in _DRIVERS:
        raise ConfigError(
            f"Invalid value for configuration connection.url: databases of the kind {kind!r:.40} are not supported; "
            f"there are {', '.join(_DRIVERS)}, and URLs of SQLAlchemy"
        )
    if kind == "sqlite":
        return URL.create("sqlite", database=rest)
    parts = urlsplit(rest)
    query = dict(parse_qsl(parts.query))
    # Java's drivers take the login as parameters of the URL.
    user, password = query.pop("user", parts.username), query.pop("password", parts.password)
    return URL.create(
        _DRIVERS[kind], user, password, parts.hostname, parts.port, parts.path.lstrip("/") or None, query
    )


def engine_of(options: Mapping[str, Any]) -> Engine:
    """An engine with one connection. Raises `ConnectError` if its driver is not installed."""
    url = database_url(options)
    try:
        return sqlalchemy.create_engine(
            url, pool_size=1, max_overflow=1, pool_pre_ping=True, hide_parameters=True
        )
    except ModuleNotFoundError as error:
        raise ConnectError(
            f"the driver {error.name} is not installed: pip install 'felice[connect-jdbc]'"
        ) from error
    except (SQLAlchemyError, TypeError, ValueError) as error:
        raise ConfigError(f"Invalid value for configuration connection.url: {type(error).__name__}") from None


def is_lost(error: SQLAlchemyError) -> bool:
    """Whether the database could not be reached, or ended the connection: another attempt may succeed."""
    return isinstance(error, (OperationalError, InterfaceError)) or (
        isinstance(error, DBAPIError) and error.connection_invalidated
    )


def reason_of(error: SQLAlchemyError) -> str:
    """The database's own text, on one line, without the statement and its values."""
    text = str(error.orig) if isinstance(error, DBAPIError) and error.orig is not None else str(error)
    return " ".join(text.split())


def with_attempts(
    engine: Engine, options: Mapping[str, Any], stopped: threading.Event, work: Callable[[Connection], T]
) -> T:
    """The result of work with a connection, which is tried as often as the options say. Raises `ConnectError`."""
    attempts: int = max(1, options["connection.attempts"])
    for number in range(1, attempts + 1):
        try:
            with engine.connect() as connection:
                return work(connection)
        except SQLAlchemyError as error:
            if not is_lost(error) or number == attempts or stopped.is_set():
                raise ConnectError(f"the database cannot be used: {reason_of(error)}") from error
        stopped.wait(options["connection.backoff.ms"] / 1000)
    raise AssertionError("the last attempt returns or raises")
