"""Requests to a server of SQL, with ksqlDB's REST API.

Keeps true: an error of the server is a `Refused` with its own words, and every other failure a `NoAnswer` that names
            the address, without user and password. A query ends at the server when its block ends, however that
            happens.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from felice import __version__

if TYPE_CHECKING:
    import httpx2

DEFAULT_URL = "http://localhost:8088"
CONNECT_S = 10.0
ANSWER_S = 600.0
"""How long a statement may take. ASSERT waits at the server, and creating many topics takes its time."""
MAX_ANSWER_BYTES = 256 << 20
MAX_LINE_BYTES = 64 << 20
"""The longest row of a query."""

_MEDIA_TYPE = "application/vnd.ksql.v1+json"
Entity = Mapping[str, Any]


class ShellError(Exception):
    """What cannot be done. The text says why."""


class Refused(ShellError):
    """An error of the server, with the entity that it sent."""

    def __init__(self, message: str, entity: Entity) -> None:
        super().__init__(message)
        self.entity = entity

    @property
    def results(self) -> list[Entity]:
        """What the server did before the error."""
        found = self.entity.get("entities")
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


class NoAnswer(ShellError):
    """No server of SQL answers."""


class Server:
    """A server of SQL. Keeps connections open; several threads may use it."""

    def __init__(
        self, url: str, user: tuple[str, str] | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        import httpx2

        url = url.rstrip("/")
        try:
            address = urlsplit(url)
            is_right = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
        except ValueError:  # a port that is not a number, half an address in brackets
            is_right = False
        if not is_right:
            raise ShellError(
                f"expected the address of a server with http:// or https://, such as {DEFAULT_URL}"
            )
        if user is None and address.username is not None:
            user = unquote(address.username), unquote(address.password or "")
        self.url = urlunsplit(address._replace(netloc=address.netloc.rpartition("@")[2]))
        """The address without user and password."""
        is_secure = address.scheme == "https"
        verify = (ssl.create_default_context() if tls is None else tls) if is_secure else False
        self._client = httpx2.Client(
            base_url=self.url,
            auth=user,
            verify=verify,
            timeout=httpx2.Timeout(ANSWER_S, connect=CONNECT_S),
            headers={"Accept": _MEDIA_TYPE, "User-Agent": f"felice/{__version__}"},
            follow_redirects=False,
            trust_env=False,
        )

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def info(self) -> Entity:
        """The version and state of the server. Raises `ShellError`."""
        found = self._ask("GET", "/info")
        inner = found.get("KsqlServerInfo") if isinstance(found, dict) else None
        if not isinstance(inner, dict):
            raise NoAnswer(f"{self.url} is not a SQL server: its /info has no KsqlServerInfo")
        return inner

    def run(self, statement: str, properties: Mapping[str, str], after: int | None = None) -> list[Entity]:
        """Runs a statement, and returns its results. With `after`, it waits for the command with this number."""
        found = self._ask("POST", "/ksql", _request(statement, properties, after))
        entities = found if isinstance(found, list) else [found]
        return [one for one in entities if isinstance(one, dict)]

    def refusal_of_property(self, name: str) -> str | None:
        """Why the server does not know a property; None if it does, or if it cannot tell."""
        try:
            self._ask("GET", f"/is_valid_property/{quote(name, safe='')}")
        except Refused as error:
            is_missing = error.entity.get("error_code", 0) // 100 in (404, 405)
            return None if is_missing else str(error)
        return None

    @contextmanager
    def query(
        self, statement: str, properties: Mapping[str, str], after: int | None = None
    ) -> Iterator[Iterator[str]]:
        """The lines that a query or PRINT gives, as they come. Raises `ShellError`, also between lines."""
        import httpx2

        # A push query may be silent for hours.
        limits = httpx2.Timeout(CONNECT_S, read=None)
        # Compressed rows would wait until a block of the compression is full.
        headers = {"Accept-Encoding": "identity"}
        request = _request(statement, properties, after)
        with (
            self._failures(),
            self._client.stream("POST", "/query", json=request, headers=headers, timeout=limits) as answer,
        ):
            if answer.status_code >= 400:
                raise self._refusal(answer, _whole(answer))
            yield self._lines(answer)

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        with self._failures(), self._client.stream(method, path, json=body) as answer:
            content = _whole(answer)
            if answer.status_code >= 400:
                raise self._refusal(answer, content)
            if not content:
                return []
            try:
                return json.loads(content)
            except ValueError:
                raise NoAnswer(f"{self.url} is not a SQL server: it does not answer with JSON") from None

    def _lines(self, answer: httpx2.Response) -> Iterator[str]:
        with self._failures():
            # `iter_lines` would also divide at the line separators that may stand in a text of JSON.
            begun = bytearray()
            for piece in answer.iter_raw():
                begun += piece
                if b"\n" in piece:
                    *lines, rest = begun.split(b"\n")
                    begun = rest
                    yield from (
                        text for line in lines if (text := line.decode(errors="replace").rstrip("\r"))
                    )
                if len(begun) > MAX_LINE_BYTES:
                    raise NoAnswer(f"a row has over {MAX_LINE_BYTES:,} bytes")
            if begun:
                yield begun.decode(errors="replace")

    def _refusal(self, answer: httpx2.Response, content: bytes) -> ShellError:
        try:
            found = json.loads(content)
        except ValueError:
            found = None
        entity = found if isinstance(found, dict) else {}
        if answer.status_code == 401:
            return Refused("the server asks for a user and a password: felice sql -u USER", entity)
        message = entity.get("message") or f"the server answered {answer.status_code}"
        return Refused(str(message), {"error_code": answer.status_code * 100, **entity})

    @contextmanager
    def _failures(self) -> Iterator[None]:
        import httpx2

        try:
            yield
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise NoAnswer(
                f"no server of SQL answers at {self.url}: {error or type(error).__name__}"
            ) from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise NoAnswer(f"{self.url}: {error or type(error).__name__}") from None


def _request(statement: str, properties: Mapping[str, str], after: int | None) -> dict[str, object]:
    # ksqlDB takes no second semicolon.
    found: dict[str, object] = {
        "ksql": f"{statement.removesuffix(';')};",
        "streamsProperties": dict(properties),
    }
    return found if after is None else {**found, "commandSequenceNumber": after}


def _whole(answer: httpx2.Response) -> bytes:
    found = bytearray()
    for piece in answer.iter_bytes():
        found += piece
        if len(found) > MAX_ANSWER_BYTES:
            raise NoAnswer(f"the answer has over {MAX_ANSWER_BYTES:,} bytes")
    return bytes(found)
