"""A schema registry in the test's process: it keeps schemas, writes down every request, and answers as it is told.

Its ids and GUIDs depend on the requests alone, so that two libraries that send the same requests get the same answers.
"""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

NOT_FOUND = {"subject": 40401, "version": 40402, "schema": 40403}


@dataclass(frozen=True)
class Seen:
    """A request as the server received it."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    def essence(self, ignored: frozenset[str]) -> tuple[Any, ...]:
        """What two libraries must send alike."""
        headers = {name: value for name, value in self.headers.items() if name not in ignored}
        return self.method, self.target, headers, self.body


class Refused(Exception):
    def __init__(self, status: int, code: int, message: str) -> None:
        self.status, self.answer = status, {"error_code": code, "message": message}


def missing(what: str) -> Refused:
    return Refused(404, NOT_FOUND[what], f"{what} not found")


@dataclass
class Registered:
    subject: str
    version: int
    id: int
    schema: dict[str, Any]

    def answer(self) -> dict[str, Any]:
        guid = str(uuid.UUID(bytes=hashlib.md5(identity(self.schema).encode()).digest()))
        return {"subject": self.subject, "version": self.version, "id": self.id, "guid": guid, **self.schema}


def identity(schema: dict[str, Any]) -> str:
    return json.dumps(schema, sort_keys=True)


def stored(body: dict[str, Any]) -> dict[str, Any]:
    """A schema as the registry returns it: an Avro schema has no type, and empty references are left out."""
    kept = {name: value for name, value in body.items() if value not in ([], None)}
    if kept.get("schemaType") == "AVRO":
        del kept["schemaType"]
    return kept


@dataclass
class Registry:
    """The state and the script of one registry."""

    ids: dict[str, int] = field(default_factory=dict)
    subjects: dict[str, list[Registered]] = field(default_factory=dict)
    config: dict[str, dict[str, Any]] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    associations: list[dict[str, Any]] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    script: deque[tuple[int, bytes]] = field(default_factory=deque)
    tells_subjects: bool = True
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, seen: Seen) -> tuple[int, bytes]:
        with self.lock:
            self.seen.append(seen)
            if self.script:
                return self.script.popleft()
            try:
                return 200, json.dumps(self._found(seen)).encode()
            except Refused as refused:
                return refused.status, json.dumps(refused.answer).encode()

    def _found(self, seen: Seen) -> Any:
        parts = urlsplit(seen.target)
        path = [unquote(part) for part in parts.path.strip("/").split("/")]
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        body = json.loads(seen.body) if seen.body else {}
        found = getattr(self, f"_{path[0]}", None)
        if found is None:
            raise Refused(404, 404, "HTTP 404 Not Found")
        return found(seen.method, path[1:], query, body)

    def register(self, subject: str, body: dict[str, Any]) -> Registered:
        schema, versions = stored(body), self.subjects.setdefault(subject, [])
        for known in versions:
            if known.schema == schema:
                return known
        schema_id = self.ids.setdefault(identity(schema), len(self.ids) + 1)
        version = versions[-1].version + 1 if versions else 1
        versions.append(Registered(subject, version, schema_id, schema))
        return versions[-1]

    def _version(self, subject: str, version: str) -> Registered:
        versions = self.subjects.get(subject)
        if not versions:
            raise missing("subject")
        if version == "latest":
            return versions[-1]
        for known in versions:
            if known.version == int(version):
                return known
        raise missing("version")

    def _subjects(self, method: str, path: list[str], query: dict[str, str], body: dict[str, Any]) -> Any:
        match method, path:
            case "GET", []:
                return [name for name in self.subjects if name.startswith(query.get("subjectPrefix", ""))]
            case "POST", [subject]:
                for known in self.subjects.get(subject, []):
                    if known.schema == stored(body):
                        return self._shown(known, query)
                raise missing("schema")
            case "DELETE", [subject]:
                return [known.version for known in self.subjects.pop(subject, [])]
            case "GET", [subject, "versions"]:
                return [known.version for known in self.subjects.get(subject, [])]
            case "POST", [subject, "versions"]:
                found = self.register(subject, body).answer()
                return {"id": found["id"], "guid": found["guid"], "version": found["version"]}
            case "GET", [subject, "versions", version]:
                return self._shown(self._version(subject, version), query)
            case "DELETE", [subject, "versions", version]:
                known = self._version(subject, version)
                self.subjects[subject].remove(known)
                return known.version
            case "GET", [subject, "versions", version, "referencedby"]:
                target = self._version(subject, version)
                return sorted(
                    known.id
                    for versions in self.subjects.values()
                    for known in versions
                    if any(
                        (used["subject"], used["version"]) == (subject, target.version)
                        for used in known.schema.get("references", ())
                    )
                )
            case "GET", [subject, "metadata"]:
                for known in reversed(self.subjects.get(subject, [])):
                    properties = known.schema.get("metadata", {}).get("properties", {})
                    if properties.get(query.get("key")) == query.get("value"):
                        return self._shown(known, query)
                raise missing("version")
        raise Refused(404, 404, "HTTP 404 Not Found")

    def _shown(self, known: Registered, query: dict[str, str]) -> dict[str, Any]:
        return known.answer()

    def _schemas(self, method: str, path: list[str], query: dict[str, str], body: dict[str, Any]) -> Any:
        every = [known for versions in self.subjects.values() for known in versions]
        match path:
            case ["types"]:
                return ["JSON", "PROTOBUF", "AVRO"]
            case ["ids", number]:
                having = [known for known in every if known.id == int(number)]
            case ["guids", guid]:
                having = [known for known in every if known.answer()["guid"] == guid]
            case ["ids", number, "subjects"]:
                return [known.subject for known in every if known.id == int(number)]
            case ["ids", number, "versions"]:
                having = [known for known in every if known.id == int(number)]
                return [{"subject": known.subject, "version": known.version} for known in having]
            case _:
                raise Refused(404, 404, "HTTP 404 Not Found")
        if not having:
            raise missing("schema")
        named = [known for known in having if known.subject == query.get("subject")]
        found = self._shown((named or having)[0], query)
        if not named or not self.tells_subjects:
            del found["subject"], found["version"]
        return found

    def _config(self, method: str, path: list[str], query: dict[str, str], body: dict[str, Any]) -> Any:
        name = path[0] if path else ""
        if method == "PUT":
            self.config[name] = body
            return body
        found = {**self.config.get(name, {"compatibility": "BACKWARD"})}
        if method == "DELETE":
            self.config.pop(name, None)
        found["compatibilityLevel"] = found.pop("compatibility", "NONE")
        return found

    def _mode(self, method: str, path: list[str], query: dict[str, str], body: dict[str, Any]) -> Any:
        name = path[0] if path else ""
        if method == "PUT":
            self.modes[name] = body["mode"]
        found = {"mode": self.modes.get(name, "READWRITE")}
        if method == "DELETE":
            self.modes.pop(name, None)
        return found

    def _contexts(self, method: str, path: list[str], query: dict[str, str], body: dict[str, Any]) -> Any:
        return ["."]

    def _compatibility(
        self, method: str, path: list[str], query: dict[str, str], body: dict[str, Any]
    ) -> Any:
        return {"is_compatible": "bad" not in body["schema"]}

    def _associations(self, method: str, path: list[str], query: dict[str, str], body: dict[str, Any]) -> Any:
        match method, path:
            case "GET", ["resources", _, name]:
                kind = query.get("associationType")
                having = [one for one in self.associations if one["resourceName"] == name]
                return [one for one in having if kind in (None, one["associationType"])]
            case "POST", []:
                resource = {name: value for name, value in body.items() if name != "associations"}
                self.associations += [{**resource, **one} for one in body["associations"]]
                return body
            case "DELETE", ["resources", resource_id]:
                kept = [one for one in self.associations if one.get("resourceId") != resource_id]
                self.associations = kept
                return None
        raise Refused(404, 404, "HTTP 404 Not Found")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize, disable_nagle_algorithm = -1, True
    registry: Registry

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, content = self.registry.answer(Seen(self.command, self.path, headers, body))
        if status == 0:  # the script wants the connection to end without an answer
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if status != 204:
            self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _answer

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True


@contextmanager
def served(registry: Registry, context: Any = None) -> Iterator[str]:
    """The URL of a registry while it is served; over TLS with a context."""
    handler = type("Handler", (_Handler,), {"registry": registry})
    server = _Server(("127.0.0.1", 0), handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005}, daemon=True)
    thread.start()
    try:
        yield f"{'https' if context else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
