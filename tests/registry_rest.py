"""The REST API of a registry in this process: without sockets, with a topic that is a list and the format TOY."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import httpx2

from felice.client.compacted.records import CompactedRecord
from felice.client.error import KafkaException
from felice.registry.journal import Journal
from felice.registry.leader import Identity
from felice.registry.leadership import Leadership
from felice.registry.parsing import Parser
from felice.registry.rest.media import RegistryErrors
from felice.registry.rest.routes import routes
from felice.registry.rights import Rights
from felice.registry.service import Registry
from felice.registry.state import State
from felice.web.application import application
from felice.web.forwarding import Forwarder
from felice.web.login import Login, WrongLogin
from registry_world import toy_parser

V1 = "application/vnd.schemaregistry.v1+json"


class ListTopic:
    """A compacted topic that is a list of records. Several registries may share the list."""

    name = "_schemas"

    def __init__(self, on_record: Callable[[CompactedRecord], None], log: list[Any] | None = None) -> None:
        self.on_record = on_record
        self.log: list[tuple[bytes | None, bytes | None]] = [] if log is None else log
        self.position = 0
        self.taken_over = 0
        self.failures: list[KafkaException] = []
        """Raised by the next writes, one each, which write nothing."""
        self.late_failures: list[KafkaException] = []
        """The same, of writes that write everything."""
        self.unread_failures: list[KafkaException] = []
        """Raised by the next waits for a write to be read, one each, which read nothing."""
        self.gate: asyncio.Event | None = None
        """A write waits for it, if there is one."""
        self.take_over_gate: asyncio.Event | None = None

    async def start(self, timeout_s: float) -> None:
        self.read()

    async def stop(self) -> None:
        pass

    def read(self) -> None:
        """Reads what is new in the log."""
        while self.position < len(self.log):
            offset = self.position
            self.position += 1
            key, value = self.log[offset]
            self.on_record(CompactedRecord(key, value, offset, 1_000 + offset, []))

    async def take_over(self, timeout_s: float) -> None:
        self.taken_over += 1
        if self.take_over_gate is not None:
            await self.take_over_gate.wait()

    async def wait_end(self, timeout_s: float) -> int:
        self.read()
        return self.position

    async def wait_read(self, offset: int, timeout_s: float) -> None:
        if self.unread_failures:
            raise self.unread_failures.pop(0)
        self.read()

    async def write(self, records: Sequence[tuple[bytes, bytes | None]]) -> int:
        if self.gate is not None:
            await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        assert len(records) <= 10_000, "a topic refuses such a write"
        self.log += records
        if self.late_failures:
            raise self.late_failures.pop(0)
        return len(self.log) - 1


class Passwords:
    """Users whose password is their name."""

    async def verify(self, user: str, password: str) -> None:
        if user != password:
            raise WrongLogin


class Rest:
    """A client of a registry. `rest.topic` is its topic, `rest.leadership` its role; it leads at first."""

    def __init__(
        self,
        log: list[Any] | None = None,
        *,
        parser: Parser | None = None,
        rights: Rights | None = None,
        login: Login | None = None,
        forwarder: Forwarder | None = None,
        leads: bool = True,
    ) -> None:
        self.topic: ListTopic

        def make_topic(on_record: Callable[[CompactedRecord], None]) -> Any:
            self.topic = ListTopic(on_record, log)
            return self.topic

        self.leadership = Leadership()
        self.registry = Registry(
            Journal(State(), make_topic), self.leadership, parser or toy_parser(), cluster_id="c1"
        )
        self.app = application(
            routes(self.registry, forwarder or Forwarder(), rights), errors=RegistryErrors(), login=login
        )
        self.app.state.registry = self.registry
        if leads:
            self.leadership.lead(Identity("here", 8081))

    async def send(self, method: str, path: str, body: Any = None, **arguments: Any) -> httpx2.Response:
        """The whole answer. `user` logs in."""
        user = arguments.pop("user", None)
        auth = None if user is None else (user, user)
        transport = httpx2.ASGITransport(self.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            if isinstance(body, bytes):
                return await client.request(method, path, content=body, auth=auth, **arguments)
            return await client.request(method, path, json=body, auth=auth, **arguments)

    async def call(self, method: str, path: str, body: Any = None, **arguments: Any) -> Any:
        """The JSON of the answer; for an error its status and code."""
        answer = await self.send(method, path, body, **arguments)
        if answer.status_code == 204:
            return None
        found = answer.json()
        if answer.status_code == 200:
            return found
        assert set(found) == {"error_code", "message"}, found
        return answer.status_code, found["error_code"]

    async def register(self, subject: str, text: str, **arguments: Any) -> Any:
        """The id of a new schema, or the error."""
        made = await self.call("POST", f"/subjects/{subject}/versions", {"schema": text, **arguments})
        return made["id"] if isinstance(made, dict) else made
