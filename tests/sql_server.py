"""A server with ksqlDB's REST API that answers what a test says, on a real socket."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

INFO = {
    "KsqlServerInfo": {
        "version": "7.9",
        "kafkaClusterId": "k",
        "ksqlServiceId": "s",
        "serverStatus": "RUNNING",
    }
}


class FakeServer:
    """Answers each statement with what `answers` has for it, and remembers the requests."""

    def __init__(self, user: str | None = None) -> None:
        self.answers: dict[str, Any] = {}
        """A statement without its semicolon -> the entities of its answer; an object is an error. A query -> its
        lines."""
        self.requests: list[dict[str, Any]] = []
        self.invalid_properties: set[str] = set()
        self.checks_properties = True
        self.query_ended = threading.Event()
        """Set when the client has closed the connection of a query that does not end."""
        self.user = user
        self.url = ""

    @property
    def statements(self) -> list[str]:
        return [request["ksql"] for request in self.requests]


ENDLESS = "the query goes on"


@contextmanager
def serving(user: str | None = None) -> Iterator[FakeServer]:
    fake = FakeServer(user)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def handle(self) -> None:
            with suppress(ConnectionError):
                super().handle()

        def do_GET(self) -> None:
            if self.refused():
                return
            name = self.path.rpartition("/")[2]
            if self.path == "/info":
                self.answer(200, INFO)
            elif not fake.checks_properties:
                self.answer(404, {"@type": "generic_error", "error_code": 40400, "message": "no such path"})
            elif name in fake.invalid_properties:
                message = f"One or more properties overrides set locally are invalid: {name}"
                self.answer(400, {"@type": "generic_error", "error_code": 40000, "message": message})
            else:
                self.answer(200, True)

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            request = json.loads(self.rfile.read(length))
            if self.refused():
                return
            fake.requests.append({**request, "path": self.path, "encoding": self.headers["Accept-Encoding"]})
            found = fake.answers.get(request["ksql"].removesuffix(";"), [])
            if isinstance(found, dict):
                self.answer(400, found)
            elif self.path == "/ksql":
                self.answer(200, found)
            else:
                self.stream(found)

        def refused(self) -> bool:
            expected = None if fake.user is None else base64.b64encode(fake.user.encode()).decode()
            if expected is None or self.headers["Authorization"] == f"Basic {expected}":
                return False
            self.answer(401, {"@type": "generic_error", "error_code": 40100, "message": "Unauthorized"})
            return True

        def answer(self, status: int, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def stream(self, lines: Sequence[str]) -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for line in lines:
                if line == ENDLESS:
                    self.close_connection = True
                    if self.connection.recv(1) == b"":
                        fake.query_ended.set()
                    return
                body = f"{line}\n".encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

    with served(Handler) as fake.url:
        yield fake


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address at which requests are handled, on threads."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def rows(
    *rows: object, schema: str = "`ID` STRING KEY, `TAGS` ARRAY<INTEGER>", end: str | None = None
) -> list[str]:
    """The lines of a query's answer."""
    found = [{"header": {"queryId": "transient_1", "schema": schema}}]
    found += [row if isinstance(row, dict) else {"row": {"columns": row}} for row in rows]  # type: ignore[misc]
    if end is not None:
        found.append({"finalMessage": end})  # type: ignore[dict-item]
    texts = [json.dumps(one) for one in found]
    return ["[" + texts[0] + ",", *(text + "," for text in texts[1:-1]), texts[-1] + "]"]


def status(message: str, number: int = 0) -> list[dict[str, Any]]:
    """The answer to a statement that changes something."""
    return [
        {
            "@type": "currentStatus",
            "statementText": "…",
            "commandId": "stream/X/create",
            "commandStatus": {"status": "SUCCESS", "message": message, "queryId": None},
            "commandSequenceNumber": number,
            "warnings": [],
        }
    ]
