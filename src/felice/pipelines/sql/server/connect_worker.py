"""The REST API of a Connect worker, as the SQL server asks it.

Keeps true: a request ends within its time limit, however slowly the worker answers, and its answer is bounded. Every
            failure is a `WorkerFailed` in one sentence, which names the worker's address and no password.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from felice.config.properties import parse_properties
from felice.dataclass import dataclass

PREFIX = "ksql.connect."
"""The prefix of the options, which have ksqlDB's names."""
URL, TIMEOUT_MS = f"{PREFIX}url", f"{PREFIX}request.timeout.ms"
SOURCE, FILE, RELOAD = (f"{PREFIX}basic.auth.credentials.{name}" for name in ("source", "file", "reload"))
TLS = f"{PREFIX}ssl."
"""The prefix of the TLS options; the rest of a name is the name in Kafka's clients."""
DEFAULT_URL = "http://localhost:8083"
DEFAULT_TIMEOUT_S = 5.0
_LONGEST_TIMEOUT_MS = 3_600_000
_OPTIONS = (URL, TIMEOUT_MS, SOURCE, FILE, RELOAD)
_SHOWN = ("location", "type", "algorithm", "protocol", "protocols", "suites")
"""The endings of the names of TLS options without a secret."""
MAX_ANSWER_BYTES = 16 << 20
_LARGE_BYTES = 1 << 16
"""A longer answer is parsed in a thread."""
_LOG_IN = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class WorkerFailed(Exception):
    """Why a worker refused a request or did not answer it. `status` is the HTTP status for the client."""

    def __init__(self, message: str, status: int = HTTPStatus.INTERNAL_SERVER_ERROR) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class WorkerAddress:
    """Where a Connect worker is, and how the server logs in there."""

    url: str = DEFAULT_URL
    timeout_s: float = DEFAULT_TIMEOUT_S
    user_file: Path | None = None
    """A file of properties with `username` and `password`."""
    is_reloaded: bool = False
    """Whether the file is read for each request."""
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    @staticmethod
    def of(options: Mapping[str, str], tls: ssl.SSLContext | None = None) -> WorkerAddress:
        """Of ksqlDB's options; those of TLS were used for `tls`. Raises ValueError."""
        for name in options:
            if name not in _OPTIONS and not name.startswith(TLS):
                raise ValueError(
                    f"there is no option {name}; there are {', '.join(_OPTIONS)} and {TLS}*, and the worker is a "
                    "program of its own: felice connect"
                )
        file = options.get(FILE, "")
        source = options.get(SOURCE, "NONE").upper()
        if source not in ("NONE", "FILE"):
            raise ValueError(f"{SOURCE} is {source!r}; it must be NONE or FILE")
        if (source == "FILE") != bool(file):
            raise ValueError(f"{SOURCE}=FILE and {FILE} belong together")
        found = WorkerAddress(
            _url(options.get(URL, DEFAULT_URL)),
            _milliseconds(options.get(TIMEOUT_MS)) / 1000,
            Path(file) if file else None,
            _flag(options.get(RELOAD, "false")),
            tls,
        )
        found.user()
        return found

    def user(self) -> tuple[str, str] | None:
        """User and password; None to ask without. Raises ValueError for a file that does not have them."""
        if self.user_file is None:
            return None
        try:
            read = parse_properties(self.user_file.read_text("utf-8-sig"))
        except (OSError, ValueError) as error:
            raise ValueError(f"{FILE}: {self.user_file} cannot be read: {error}") from None
        if not read.get("username") or "password" not in read:
            raise ValueError(f"{FILE}: {self.user_file} must have username and password")
        return read["username"], read["password"]


def shown_options(options: Mapping[str, str]) -> dict[str, str]:
    """Those options that everyone may see. The others may be passwords and keys, or hold them."""
    return {
        name: value
        for name, value in options.items()
        if name in _OPTIONS or (name.startswith(TLS) and name.rpartition(".")[2] in _SHOWN)
    }


def _url(text: str) -> str:
    try:
        address = urlsplit(text)
        is_right = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:  # a port that is not a number, half an address in brackets
        is_right = False
    if not is_right or address.username is not None or address.query or address.fragment:
        raise ValueError(
            f"{URL} must be an address such as {DEFAULT_URL}; user and password are in the file of {FILE}"
        )
    return text.rstrip("/")


def _milliseconds(text: str | None) -> int:
    if text is None:
        return int(DEFAULT_TIMEOUT_S * 1000)
    if not (text.isdecimal() and len(text) <= len(str(_LONGEST_TIMEOUT_MS)) and int(text) > 0):
        raise ValueError(f"{TIMEOUT_MS} is {text!r}; it must be a number of milliseconds")
    return min(int(text), _LONGEST_TIMEOUT_MS)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{RELOAD} is {text!r}; it must be true or false")
    return text.lower() == "true"


class ConnectWorker:
    """Asks a worker. Keeps connections open."""

    def __init__(self, address: WorkerAddress) -> None:
        self.address = address
        self._client: httpx2.AsyncClient | None = None
        self._user: tuple[str, str] | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """The JSON of an answer; None for one without. Raises `WorkerFailed`."""
        address = self.address
        try:
            async with asyncio.timeout(address.timeout_s):
                status, content = await self._sent(method, path, body)
        except TimeoutError:
            may_be = "" if method == "GET" else "; it may have done what it was asked"
            raise WorkerFailed(
                f"the Connect worker at {address.url} did not answer within {address.timeout_s:g} seconds "
                f"({TIMEOUT_MS}){may_be}"
            ) from None
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            reason = str(error) or type(error).__name__
            raise WorkerFailed(
                f"no Connect worker answers at {address.url}: {reason}; start one with `felice connect`, or name "
                f"another one as {URL}"
            ) from None
        except httpx2.HTTPError as error:
            raise WorkerFailed(
                f"the Connect worker at {address.url} gave no answer: {error or type(error).__name__}"
            ) from None
        found = await self._parsed(content)
        if status >= HTTPStatus.BAD_REQUEST:
            raise self._refusal(status, found)
        return found

    async def _sent(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        client = await self._opened()
        if self.address.is_reloaded:
            self._user = await self._read_user()
        auth = None if self._user is None else httpx2.BasicAuth(*self._user)
        request = client.build_request(method, self.address.url + path, json=body)
        answer = await client.send(request, auth=auth, stream=True)
        try:
            content = bytearray()
            async for part in answer.aiter_bytes():
                content += part
                if len(content) > MAX_ANSWER_BYTES:
                    raise WorkerFailed(
                        f"the answer of {self.address.url} has over {MAX_ANSWER_BYTES:,} bytes"
                    )
        finally:
            await answer.aclose()
        return answer.status_code, bytes(content)

    async def _opened(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._user = await self._read_user()
            address = self.address
            verify: ssl.SSLContext | bool = False
            if address.url.startswith("https"):
                verify = (
                    await asyncio.to_thread(ssl.create_default_context)
                    if address.tls is None
                    else address.tls
                )
            if self._client is None:
                # `ask` limits the time as a whole.
                self._client = httpx2.AsyncClient(
                    timeout=None, verify=verify, trust_env=False, follow_redirects=False
                )
        return self._client

    async def _read_user(self) -> tuple[str, str] | None:
        try:
            return await asyncio.to_thread(self.address.user)
        except ValueError as error:
            raise WorkerFailed(str(error)) from None

    async def _parsed(self, content: bytes) -> Any:
        if not content.strip():
            return None
        try:
            if len(content) > _LARGE_BYTES:
                return await asyncio.to_thread(json.loads, content)
            return json.loads(content)
        except (ValueError, RecursionError):
            return content

    def _refusal(self, status: int, found: Any) -> WorkerFailed:
        if status in _LOG_IN:
            return WorkerFailed(
                f"the Connect worker at {self.address.url} refused this server's log in ({status}); {SOURCE} and "
                f"{FILE} name user and password"
            )
        message = found.get("message") if isinstance(found, dict) else None
        if not isinstance(message, str):
            return WorkerFailed(f"{self.address.url} answered {status}: is it a Connect worker?")
        return WorkerFailed(message, status)

    def strange(self, path: str) -> WorkerFailed:
        """That an answer is none of Connect's API."""
        return WorkerFailed(
            f"{self.address.url} is not a Connect worker: Connect's REST API has no such answer to {path}"
        )
