"""`felice sql-server` as a process, and its API."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from conformance.web_process import LIMIT_S, WebProcess

READY = "The SQL server is ready on "
SPARK_LIMIT_S = 400
"""Spark may have to start first, on a machine that is busy."""
EARLIEST = "auto.offset.reset=earliest"


class SqlProcess(WebProcess):
    """A server at a free port, with a data directory of its own."""

    def __init__(self, bootstrap: str, directory: Path, name: str, *words: str) -> None:
        options = ["sql-server", "--bootstrap-server", bootstrap, "--port", "0", "--service-id", name]
        options += ["--data", str(directory), "--property", EARLIEST, "--replication-factor", "1", *words]
        self.directory = directory
        super().__init__(options, READY, directory.with_suffix(".log"))

    def post(self, path: str, body: Any, **headers: str) -> httpx2.Response:
        return httpx2.post(self.url + path, json=body, headers=headers, timeout=LIMIT_S, trust_env=False)

    def ksql(self, text: str, **settings: str) -> list[dict[str, Any]]:
        """The answers to statements, which must succeed."""
        answer = self.post("/ksql", {"ksql": text, "streamsProperties": settings})
        assert answer.status_code == 200, answer.text
        return answer.json()  # type: ignore[no-any-return]

    def refused(self, path: str, text: str) -> dict[str, Any]:
        """The answer to a statement that is refused."""
        answer = self.post(path, {"sql" if path == "/query-stream" else "ksql": text})
        assert answer.status_code == 400, answer.text
        return answer.json()  # type: ignore[no-any-return]

    def rows(self, text: str, **settings: str) -> list[list[Any]]:
        """The rows of a SELECT that ends."""
        answer = self.post("/query-stream", {"sql": text, "properties": settings})
        assert answer.status_code == 200, answer.text
        about, *rows = [json.loads(line) for line in answer.text.splitlines()]
        assert "queryId" in about, about
        return rows

    @contextmanager
    def streamed(self, path: str, body: Any) -> Iterator[Iterator[str]]:
        """The lines of an answer that does not end."""
        with httpx2.stream("POST", self.url + path, json=body, timeout=LIMIT_S, trust_env=False) as answer:
            assert answer.status_code == 200
            yield answer.iter_lines()

    def until(self, text: str, wanted: Callable[[list[list[Any]]], bool]) -> list[list[Any]]:
        """The rows of a SELECT, when they are as wanted."""
        ends_at = time.monotonic() + SPARK_LIMIT_S
        while not wanted(rows := self.rows(text)):
            assert time.monotonic() < ends_at, f"{rows}; {self.log.read_text()[-5000:]}"
            time.sleep(0.2)
        return rows
