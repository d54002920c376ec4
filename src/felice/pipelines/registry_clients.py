"""Clients of schema registries for pipelines: one for each configuration and process.

Keeps true:  a configuration travels to worker processes as values; a client never does. Credentials never stand in the
             text of a configuration, a plan or an error.
             A registry that cannot be asked is told apart from bytes that cannot be read: no record is at fault then.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from felice.dataclass import dataclass
from felice.pipelines.errors import OutsideError, PlainError

T = TypeVar("T")

MOCK = "mock://"
"""Addresses that begin so name a registry in the memory of this process, for tests."""

_NO_SCHEMA = 40403

_clients: dict[tuple[int, RegistryAddress], Any] = {}
_mocks: dict[str, Any] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """Where a registry is, and how to log in: a client's configuration with confluent_kafka's names."""

    options: tuple[tuple[str, Any], ...]

    @staticmethod
    def of(given: str | Mapping[str, Any]) -> RegistryAddress:
        """Of an address, or of a configuration with `url`. Raises ValueError or TypeError for one that is not right."""
        options = {"url": given} if isinstance(given, str) else dict(given)
        if not str(options.get("url")).startswith(MOCK):
            from felice.client.schema_registry.settings import Settings

            Settings.of(options)
        for name, value in options.items():
            if isinstance(value, dict | list | set):
                raise TypeError(f"{name} must be one value here, not a {type(value).__name__}")
        return RegistryAddress(tuple(sorted(options.items())))

    @property
    def url(self) -> str:
        """The address without a password."""
        parts = urlsplit(str(dict(self.options)["url"]))
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    @property
    def is_shared(self) -> bool:
        """Whether other processes find the same registry at this address."""
        return not self.url.startswith(MOCK)

    def __reduce__(self) -> tuple[type[RegistryAddress], tuple[tuple[tuple[str, Any], ...]]]:
        self.check_shared()
        return RegistryAddress, (self.options,)

    def check_shared(self) -> None:
        """Raise `PlainError` for an address that only this process has: ids would differ between processes."""
        if not self.is_shared:
            raise PlainError(
                f"the registry {self.url} is in the memory of one process, for TestDriver; "
                "Spark's workers need one with an address, such as http://127.0.0.1:8081"
            )

    def __repr__(self) -> str:
        return f"RegistryAddress({self.url!r})"

    def client(self) -> Any:
        """The blocking client of this process. Raises `OutsideError` for a file of TLS that cannot be read."""
        if not self.is_shared:
            return _mock(self.url)
        key = os.getpid(), self
        with _lock:
            if key not in _clients:
                from felice.client.schema_registry import SchemaRegistryClient

                try:
                    _clients[key] = SchemaRegistryClient(dict(self.options))
                except OSError as error:
                    raise OutsideError(
                        f"the client of the schema registry at {self.url} cannot be made: {error}"
                    ) from error
            return _clients[key]


def _mock(url: str) -> Any:
    with _lock:
        if url not in _mocks:
            from felice.client.schema_registry.mock import MockSchemaRegistryClient

            _mocks[url] = MockSchemaRegistryClient()
        return _mocks[url]


def read_with(address: RegistryAddress, work: Callable[[], T]) -> T:
    """What `work` reads with a registry's schemas. Raises ValueError for bytes that cannot be read.

    Raises `OutsideError` if the registry gives no answer, or refuses.
    """
    return _done(address, work, names_schemas=True)


def write_with(address: RegistryAddress, work: Callable[[], T]) -> T:
    """What `work` writes with a registry's schemas. Raises ValueError for a value that does not match its schema.

    Raises `OutsideError` if the registry gives no answer, or refuses the schema.
    """
    return _done(address, work, names_schemas=False)


def _done(address: RegistryAddress, work: Callable[[], T], *, names_schemas: bool) -> T:
    """The result of `work`. `names_schemas`: the bytes name their schema, so one that does not exist is their fault."""
    from felice.client.schema_registry.error import SchemaRegistryError

    try:
        return work()
    except SchemaRegistryError as error:
        if names_schemas and error.error_code == _NO_SCHEMA:
            raise ValueError(f"the registry at {address.url} does not know its schema") from None
        raise OutsideError(f"the schema registry at {address.url} refuses: {error}") from error
    except PlainError:
        raise
    except Exception as error:
        if is_of_transport(error):
            why = f"the schema registry at {address.url} does not answer ({_said(error)}); is it running?"
            raise OutsideError(why) from error
        raise ValueError(_said(error)) from error


def is_of_transport(error: Exception) -> bool:
    """Whether a request got no answer: refused, cut, or too late."""
    import httpx2

    return isinstance(error, httpx2.HTTPError | OSError)


def _said(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
