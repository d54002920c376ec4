"""`SchemaRegistryClient` and `AsyncSchemaRegistryClient`: the shells that send the requests of `Operations`.

Both have the same calls; those of the second are coroutines. Both keep connections open and may be used by several
threads, or tasks of one event loop.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx2 as httpx

from felice import __version__
from felice.client.schema_registry.exchange import MAX_ANSWER_BYTES, Failed, Reply
from felice.client.schema_registry.operations import Operations
from felice.client.schema_registry.settings import Settings, Tls
from felice.client.schema_registry.steps import Call, Send, Step, Steps, Wait, run, run_async

P = ParamSpec("P")
T = TypeVar("T")

AGENT = f"felice/{__version__}"


@contextmanager
def _naming(name: str, path: str) -> Iterator[None]:
    """Adds a property and its file to errors: those of `ssl` name neither."""
    try:
        yield
    except OSError as error:
        raise type(error)(error.errno, f"{name} {path}: {error.strerror or error}") from error


def tls_context(tls: Tls) -> ssl.SSLContext:
    """The context of connections to the registry. Raises OSError (ssl.SSLError too) for files that cannot be read."""
    if tls.ca is False:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif isinstance(tls.ca, str):
        is_directory = Path(tls.ca).is_dir()
        cafile, capath = (None, tls.ca) if is_directory else (tls.ca, None)
        with _naming("ssl.ca.location", tls.ca):
            context = ssl.create_default_context(cafile=cafile, capath=capath)
    else:
        context = ssl.create_default_context()
    if tls.certificate is not None:
        # Without a password for an encrypted key, OpenSSL would ask on the terminal.
        with _naming("ssl.certificate.location", " and ".join(filter(None, (tls.certificate, tls.key)))):
            context.load_cert_chain(tls.certificate, tls.key, tls.key_password or "")
    return context


def _session_arguments(settings: Settings) -> dict[str, Any]:
    needs_tls = any(url.startswith("https:") for url in settings.urls) or settings.tls != Tls()
    return {
        "verify": tls_context(settings.tls) if needs_tls else False,
        "auth": settings.user,
        "proxy": settings.proxy,
        "timeout": settings.timeout_s,
    }


class _Answer:
    """Collects the body of an answer, up to a limit."""

    def __init__(self, status: int) -> None:
        self._status, self._chunks, self._size = status, list[bytes](), 0

    def add(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size > MAX_ANSWER_BYTES:
            raise ValueError(f"the registry's answer is longer than {MAX_ANSWER_BYTES} bytes")
        self._chunks.append(chunk)

    def reply(self) -> Reply:
        return Reply(self._status, b"".join(self._chunks))


class RegistryClient:
    """The part of a client that asks nothing: configuration, caches and operations."""

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self._conf = conf
        self._settings = Settings.of(conf)
        self.operations = Operations(self._settings, time.monotonic, random.random, AGENT)

    def config(self) -> Mapping[str, Any]:
        """Return the configuration that was given."""
        return self._conf


def _blocking(
    operation: Callable[Concatenate[Operations, P], Steps[T]],
) -> Callable[Concatenate[SchemaRegistryClient, P], T]:
    @functools.wraps(operation)
    def call(self: SchemaRegistryClient, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        return run(operation(self.operations, *arguments, **keywords), self._perform)

    return call


def _coroutine(
    operation: Callable[Concatenate[Operations, P], Steps[T]],
) -> Callable[Concatenate[AsyncSchemaRegistryClient, P], Awaitable[T]]:
    @functools.wraps(operation)
    async def call(self: AsyncSchemaRegistryClient, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        return await run_async(operation(self.operations, *arguments, **keywords), self._perform)

    return call


class SchemaRegistryClient(RegistryClient):
    """A client of a schema registry whose calls block. `conf` is described in docs/client.md.

    Every call raises `SchemaRegistryError` if the registry refuses it, and the HTTP library's error (httpx2) if no
    server answers.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        super().__init__(conf)
        self._session = httpx.Client(**_session_arguments(self._settings))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Later calls raise RuntimeError unless a cache answers them."""
        self._session.close()

    def clear_latest_caches(self) -> None:
        """Forget which versions are the latest."""
        self.operations.clear_latest_caches()

    def clear_caches(self) -> None:
        """Forget every schema, id and version."""
        self.operations.clear_caches()

    @staticmethod
    def new_client(conf: Mapping[str, Any]) -> SchemaRegistryClient:
        """Return a client of this configuration."""
        return SchemaRegistryClient(conf)

    def _perform(self, step: Step) -> object:
        if isinstance(step, Send):
            return self._send(step)
        if isinstance(step, Call):
            return step.function(*step.arguments)
        assert isinstance(step, Wait)
        time.sleep(step.seconds)
        return None

    def _send(self, send: Send) -> Reply | Failed:
        try:
            with self._session.stream(
                send.method, send.url, headers=send.headers, content=send.body
            ) as response:
                answer = _Answer(response.status_code)
                for chunk in response.iter_bytes():
                    answer.add(chunk)
            return answer.reply()
        except Exception as error:
            return Failed(error, isinstance(error, httpx.TransportError))

    register_schema = _blocking(Operations.register_schema)
    register_schema_full_response = _blocking(Operations.register_schema_full_response)
    get_schema = _blocking(Operations.get_schema)
    get_schema_by_guid = _blocking(Operations.get_schema_by_guid)
    get_schema_types = _blocking(Operations.get_schema_types)
    get_subjects_by_schema_id = _blocking(Operations.get_subjects_by_schema_id)
    get_schema_versions = _blocking(Operations.get_schema_versions)
    lookup_schema = _blocking(Operations.lookup_schema)
    get_subjects = _blocking(Operations.get_subjects)
    delete_subject = _blocking(Operations.delete_subject)
    get_latest_version = _blocking(Operations.get_latest_version)
    get_latest_with_metadata = _blocking(Operations.get_latest_with_metadata)
    get_version = _blocking(Operations.get_version)
    get_referenced_by = _blocking(Operations.get_referenced_by)
    get_versions = _blocking(Operations.get_versions)
    delete_version = _blocking(Operations.delete_version)
    set_compatibility = _blocking(Operations.set_compatibility)
    get_compatibility = _blocking(Operations.get_compatibility)
    test_compatibility = _blocking(Operations.test_compatibility)
    test_compatibility_all_versions = _blocking(Operations.test_compatibility_all_versions)
    set_config = _blocking(Operations.set_config)
    delete_config = _blocking(Operations.delete_config)
    get_config = _blocking(Operations.get_config)
    get_mode = _blocking(Operations.get_mode)
    update_mode = _blocking(Operations.update_mode)
    delete_mode = _blocking(Operations.delete_mode)
    get_global_mode = _blocking(Operations.get_global_mode)
    update_global_mode = _blocking(Operations.update_global_mode)
    get_contexts = _blocking(Operations.get_contexts)
    get_associations_by_resource_name = _blocking(Operations.get_associations_by_resource_name)
    create_association = _blocking(Operations.create_association)
    delete_associations = _blocking(Operations.delete_associations)


class AsyncSchemaRegistryClient(RegistryClient):
    """A client of a schema registry whose calls are coroutines; otherwise as `SchemaRegistryClient`."""

    def __init__(self, conf: Mapping[str, Any]) -> None:
        super().__init__(conf)
        self._session = httpx.AsyncClient(**_session_arguments(self._settings))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. Later calls raise RuntimeError unless a cache answers them."""
        await self._session.aclose()

    async def clear_latest_caches(self) -> None:
        """Forget which versions are the latest."""
        self.operations.clear_latest_caches()

    async def clear_caches(self) -> None:
        """Forget every schema, id and version."""
        self.operations.clear_caches()

    @staticmethod
    def new_client(conf: Mapping[str, Any]) -> AsyncSchemaRegistryClient:
        """Return a client of this configuration."""
        return AsyncSchemaRegistryClient(conf)

    async def _perform(self, step: Step) -> object:
        if isinstance(step, Send):
            return await self._send(step)
        if isinstance(step, Call):
            result = step.function(*step.arguments)
            return await result if inspect.isawaitable(result) else result
        assert isinstance(step, Wait)
        await asyncio.sleep(step.seconds)
        return None

    async def _send(self, send: Send) -> Reply | Failed:
        try:
            async with self._session.stream(
                send.method, send.url, headers=send.headers, content=send.body
            ) as response:
                answer = _Answer(response.status_code)
                async for chunk in response.aiter_bytes():
                    answer.add(chunk)
            return answer.reply()
        except Exception as error:
            return Failed(error, isinstance(error, httpx.TransportError))

    register_schema = _coroutine(Operations.register_schema)
    register_schema_full_response = _coroutine(Operations.register_schema_full_response)
    get_schema = _coroutine(Operations.get_schema)
    get_schema_by_guid = _coroutine(Operations.get_schema_by_guid)
    get_schema_types = _coroutine(Operations.get_schema_types)
    get_subjects_by_schema_id = _coroutine(Operations.get_subjects_by_schema_id)
    get_schema_versions = _coroutine(Operations.get_schema_versions)
    lookup_schema = _coroutine(Operations.lookup_schema)
    get_subjects = _coroutine(Operations.get_subjects)
    delete_subject = _coroutine(Operations.delete_subject)
    get_latest_version = _coroutine(Operations.get_latest_version)
    get_latest_with_metadata = _coroutine(Operations.get_latest_with_metadata)
    get_version = _coroutine(Operations.get_version)
    get_referenced_by = _coroutine(Operations.get_referenced_by)
    get_versions = _coroutine(Operations.get_versions)
    delete_version = _coroutine(Operations.delete_version)
    set_compatibility = _coroutine(Operations.set_compatibility)
    get_compatibility = _coroutine(Operations.get_compatibility)
    test_compatibility = _coroutine(Operations.test_compatibility)
    test_compatibility_all_versions = _coroutine(Operations.test_compatibility_all_versions)
    set_config = _coroutine(Operations.set_config)
    delete_config = _coroutine(Operations.delete_config)
    get_config = _coroutine(Operations.get_config)
    get_mode = _coroutine(Operations.get_mode)
    update_mode = _coroutine(Operations.update_mode)
    delete_mode = _coroutine(Operations.delete_mode)
    get_global_mode = _coroutine(Operations.get_global_mode)
    update_global_mode = _coroutine(Operations.update_global_mode)
    get_contexts = _coroutine(Operations.get_contexts)
    get_associations_by_resource_name = _coroutine(Operations.get_associations_by_resource_name)
    create_association = _coroutine(Operations.create_association)
    delete_associations = _coroutine(Operations.delete_associations)
