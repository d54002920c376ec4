"""Requests to the servers of a cluster: the next address when one does not answer, and again while they are busy."""

from __future__ import annotations

import gzip
import json
import logging
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from felice.pipelines.connect.connectors.http_attempts import BUSY, first_words, wait_s
from felice.pipelines.connect.model.errors import ConnectError

_log = logging.getLogger("felice.connect.search")


class Refused(ConnectError):
    """A server refuses a request, and will refuse it again."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Stopped(ConnectError):
    """The task was stopped while it waited for a server."""


class Server:
    """A cluster. Any thread may send requests."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Connects to nothing yet. Raises `ConnectError` if the HTTP library is not installed."""
        try:
            import httpx2
        except ModuleNotFoundError as error:
            raise ConnectError(f"{error.name} is not installed: pip install 'felice[connect]'") from error
        self._urls = [one.rstrip("/") for one in options["connection.url"]]
        self._options = options
        self._current = 0
        self._stopped = threading.Event()
        password = options["connection.password"]
        user = options["connection.username"]
        requests = options["max.in.flight.requests"] + 1
        self._client = httpx2.Client(
            auth=httpx2.BasicAuth(user, password.value) if user and password is not None else None,
            timeout=httpx2.Timeout(
                options["read.timeout.ms"] / 1000, connect=options["connection.timeout.ms"] / 1000
            ),
            limits=httpx2.Limits(max_connections=requests, max_keepalive_connections=requests),
            follow_redirects=False,
            trust_env=False,
        )

    def close(self) -> None:
        """Ends the waits of other threads, and closes the connections."""
        self._stopped.set()
        self._client.close()

    def wait(self, failures: int, why: str) -> None:
        """Waits after a failure. Raises `ConnectError` after the last attempt, and `Stopped`."""
        if failures >= self._options["max.retries"]:
            raise ConnectError(f"{why}; it was tried {failures + 1} times")
        _log.warning("%s; it is tried again", why)
        if self._stopped.wait(wait_s(self._options["retry.backoff.ms"], failures)):
            raise Stopped("the task is stopped")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """What a server answers to a request with a body of JSON. Raises `Refused` and `ConnectError`."""
        data = None if body is None else json.dumps(body).encode()
        return self.send(method, path, data, "application/json")

    def send(self, method: str, path: str, data: bytes | None, content_type: str) -> Any:
        """What a server answers. Raises `Refused` and `ConnectError`."""
        import httpx2

        headers = {} if data is None else {"Content-Type": content_type}
        if data is not None and self._options["connection.compression"]:
            data, headers["Content-Encoding"] = gzip.compress(data, 1), "gzip"
        failures = 0
        while True:
            number = self._current
            url = self._urls[number % len(self._urls)]
            try:
                answer = self._client.request(method, url + path, content=data, headers=headers)
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                if self._stopped.is_set():
                    raise Stopped("the task is stopped") from None
                if self._current == number:
                    self._current = number + 1
                self.wait(failures, f"{url} does not answer: {error or type(error).__name__}")
                failures += 1
                continue
            if answer.status_code in BUSY:
                self.wait(failures, f"{url} answers {answer.status_code}: {first_words(answer.text)}")
                failures += 1
                continue
            if answer.status_code >= 300:
                text = f"{url} answers {answer.status_code} to {method} {path}: {first_words(answer.text)}"
                raise Refused(answer.status_code, text)
            try:
                return answer.json() if answer.content else None
            except ValueError:
                raise ConnectError(f"{url} answers {method} {path} with something other than JSON") from None

    def has(self, path: str) -> bool:
        """Whether something is there."""
        try:
            self.send("HEAD", path, None, "")
        except Refused as error:
            if error.status == 404:
                return False
            raise
        return True

    def create_index(self, name: str) -> None:
        """Creates an index unless it, or an alias of its name, is there."""
        path = f"/{quote(name, safe='')}"
        if self.has(path):
            return
        try:
            self.ask("PUT", path)
        except Refused as error:
            if "already_exists" not in str(error):  # another task was faster
                raise

    def create_stream(self, name: str) -> None:
        """Creates a data stream unless it is there. The cluster has a template for its name."""
        path = f"/_data_stream/{quote(name, safe='')}"
        try:
            self.ask("GET", path)
            return
        except Refused as error:
            if error.status != 404:
                raise
        try:
            self.ask("PUT", path)
        except Refused as error:
            if "already_exists" not in str(error):
                raise

    def map_members(self, name: str, mapping: Mapping[str, Any]) -> None:
        """Gives an index the types of its members, unless it has types already."""
        path = f"/{quote(name, safe='')}/_mapping"
        known = self.ask("GET", path)
        if not any(one.get("mappings") for one in known.values()):
            self.ask("PUT", path, mapping)
