"""The worker's side of the links: an address where running tasks report, and what each of them is told.

Keeps true:  a link is given to the first connection that proves that it has the link's key, and to no other one.
             A connection that proves nothing is closed after `PROOF_S`, and never holds up another.
             Offsets are read and written on threads: the event loop waits for no disk and no broker.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Callable
from typing import Any

from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.tasks import TaskId, TaskState
from felice.pipelines.connect.runtime.messages import (
    END,
    HEAD,
    LINES,
    MAX_BYTES,
    MAX_PROOF_BYTES,
    PROGRESS,
    READ,
    STATE,
    TOPIC,
    WRITE,
    Message,
    Ticket,
    frame_of,
    length_of,
    proof,
)
from felice.pipelines.connect.runtime.progress import Progress
from felice.pipelines.connect.storage.json_records import decoded, member
from felice.pipelines.connect.task.source_offsets import OffsetStore

_log = logging.getLogger("felice.connect.runtime")

PROOF_S = 10.0


class WorkerLink:
    """The link to one running task. `on_state` is called on the event loop for each state that the task tells.

    `on_topic` may be set: it is called with each topic that the task uses.
    """

    def __init__(
        self, task: TaskId, ticket: Ticket, on_state: Callable[[TaskState], None], offsets: OffsetStore | None
    ) -> None:
        self.on_topic: Callable[[str], None] = lambda topic: None
        self.task = task
        self.ticket = ticket
        self.ended = asyncio.Event()
        """Set when the task said goodbye, or its connection broke: it can do nothing for the worker any more."""
        self.begun = asyncio.Event()
        """Set when the task has reported: from then on it can follow wishes."""
        self.progress = Progress()
        self.trace: str | None = None
        """The trace of the error that ended the task."""
        self.said_goodbye = False
        self._on_state = on_state
        self._offsets = offsets
        self._writer: asyncio.StreamWriter | None = None
        self._wishes: list[str] = []

    @property
    def is_connected(self) -> bool:
        """Whether the task has reported."""
        return self._writer is not None

    def wish(self, wish: str) -> None:
        """Tells the task to pause, to resume or to stop; at once, or when it reports."""
        if self._writer is None:
            self._wishes.append(wish)
        elif not self.ended.is_set():
            self._writer.write(frame_of({"wish": wish}))

    def _take(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.begun.set()
        for wish in self._wishes:
            writer.write(frame_of({"wish": wish}))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._take(writer)
        try:
            while not self.said_goodbye:
                await self._handle(await _receive(reader), writer)
        finally:
            self.ended.set()

    async def _handle(self, message: Message, writer: asyncio.StreamWriter) -> None:
        if STATE in message:
            self._on_state(TaskState(message[STATE]))
        elif TOPIC in message:
            self.on_topic(member(message, TOPIC, str))
        elif PROGRESS in message:
            self.progress.take(member(message, PROGRESS, dict))
        elif LINES in message:
            self.progress.add_lines(member(message, LINES, list))
        elif END in message:
            self.trace = message[END]
            self.said_goodbye = True
        elif "question" in message:
            answer: dict[str, Any] = {"question": message["question"]}
            try:
                answer["answer"] = await asyncio.to_thread(self._about_offsets, message)
            except ConnectError as error:
                answer["error"] = str(error)
            writer.write(frame_of(answer))
            await writer.drain()

    def _about_offsets(self, message: Message) -> Any:
        if self._offsets is None:
            raise ConnectError("this worker keeps no offsets for the task")
        if READ in message:
            return self._offsets.read(message[READ])
        self._offsets.write([(place, at) for place, at in message[WRITE]])
        return None


class WorkerLinks:
    """The address where tasks report."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._waiting: dict[int, WorkerLink] = {}
        self._last = 0
        self._host = ""
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, host: str) -> None:
        """Listens on a free port of this address, which must be one that the tasks' machines can reach."""
        self._host = host
        self._server = await asyncio.start_server(self._accept, host, 0)

    def open(
        self, task: TaskId, on_state: Callable[[TaskState], None], offsets: OffsetStore | None = None
    ) -> WorkerLink:
        """A link for a task that will be started with its ticket."""
        assert self._server is not None, "the links are not started"
        self._last += 1
        port = self._server.sockets[0].getsockname()[1]
        ticket = Ticket(self._host, port, self._last, secrets.token_bytes(32))
        link = self._waiting[self._last] = WorkerLink(task, ticket, on_state, offsets)
        return link

    def forget(self, link: WorkerLink) -> None:
        """Closes a link whose task never reported: it cannot do so any more."""
        self._waiting.pop(link.ticket.number, None)
        if not link.is_connected:
            link.ended.set()

    async def close(self) -> None:
        """Closes all links: their tasks end."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        try:
            async with asyncio.timeout(PROOF_S):
                link = await self._proven(reader, writer)
            await link._serve(reader, writer)
        except asyncio.IncompleteReadError:
            _log.debug("a connection to the links of tasks was closed by the other side")
        except (OSError, TimeoutError, ValueError, ConnectError) as error:
            _log.warning("a connection to the links of tasks ended: %s", error or type(error).__name__)
        finally:
            self._connections.discard(connection)
            writer.close()

    async def _proven(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> WorkerLink:
        challenge = secrets.token_hex(32)
        writer.write(frame_of({"challenge": challenge}))
        hello = await _receive(reader, MAX_PROOF_BYTES)
        number, given = member(hello, "number", int), member(hello, "proof", str)
        link = self._waiting.get(number)
        key = link.ticket.key if link is not None else secrets.token_bytes(32)
        if not hmac.compare_digest(given.encode(errors="replace"), proof(key, challenge).encode()):
            raise ConnectError("its proof is wrong")
        return self._waiting.pop(number)


async def _receive(reader: asyncio.StreamReader, limit: int = MAX_BYTES) -> Message:
    length = length_of(await reader.readexactly(HEAD.size), limit)
    return decoded(await reader.readexactly(length))
