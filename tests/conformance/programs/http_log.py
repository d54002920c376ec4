"""A server that appends the body of each request to a file, on the disk before it answers: `http_log.py PORT FILE`."""

from __future__ import annotations

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open(sys.argv[2], "ab") as file:
            # One write, so that a kill leaves no half of a body.
            os.write(file.fileno(), body + b"\n")
            os.fsync(file.fileno())
        self._answer()

    def _answer(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words: object) -> None: ...


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
