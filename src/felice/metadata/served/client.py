"""The client: one session with a store that another process of this machine serves.

Keeps true: answers and events arrive in the order in which the server sent them. The session counts as ended at the
            latest when the server may have ended it: its timeout after the last answered request had been sent. A
            server that is gone does not return: `renew` is then refused.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Sequence
from itertools import count

from felice.env import Clock
from felice.metadata.served.wire import (
    Json,
    Message,
    decode_children,
    decode_error,
    decode_nodes,
    decode_outcomes,
    encode_operation,
    read_message,
    write_message,
)
from felice.metadata.session import SessionLife, SingleWrites, Watches
from felice.metadata.store import (
    Event,
    EventKind,
    Listener,
    Node,
    NoNode,
    Operation,
    SessionExpired,
    SessionListener,
    SessionState,
    StoreUnavailable,
    check_path,
)

_log = logging.getLogger("felice.metadata")

# Pings within a session timeout: losing one does not end the session.
_PINGS_A_TIMEOUT = 4


class ServedStore(SingleWrites):
    """Created by `open`."""

    def __init__(
        self, reader: StreamReader, writer: StreamWriter, clock: Clock, session_id: int, timeout_s: float
    ) -> None:
        self.session_id = session_id
        self.timeout_s = timeout_s
        self._reader, self._writer, self._clock = reader, writer, clock
        self._watches = Watches()
        self._life = SessionLife()
        self._numbers = count(1)
        # Requests under way, and the time when each was sent.
        self._asked: dict[int, tuple[asyncio.Future[Json], float]] = {}
        self._heard_s = clock.monotonic()
        self._is_gone = False
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._listen()), loop.create_task(self._keep_alive())]

    @classmethod
    async def open(cls, reader: StreamReader, writer: StreamWriter, clock: Clock) -> ServedStore:
        """Raises `StoreUnavailable` if no server answers at the other end."""
        try:
            greeting = await read_message(reader)
        except (EOFError, ConnectionError, ValueError) as error:
            writer.close()
            raise StoreUnavailable("/", "no process serves the metadata store") from error
        match greeting:
            case [0, "session", int(session_id), int(timeout_s) | float(timeout_s)]:
                return cls(reader, writer, clock, session_id, timeout_s)
        writer.close()
        raise StoreUnavailable("/", "another kind of server answers")

    @property
    def session_state(self) -> SessionState:
        """The session's state, which takes the time since the last answer into account."""
        self._look_at_the_clock()
        return self._life.state

    def watch_session(self, listener: SessionListener) -> Callable[[], None]:
        """Calls `listener` with each new state until the returned function is called."""
        return self._life.listen(listener)

    def watch(self, path: str, listener: Listener) -> Callable[[], None]:
        """Calls `listener` for each change at `path` and below, until the returned function is called."""
        return self._watches.add(path, listener)

    async def renew(self) -> None:
        """Begins the next session. Raises `SessionExpired` if the server is gone or this store was closed."""
        if self._is_gone:
            raise SessionExpired()
        if self.session_state is SessionState.CONNECTED:
            return
        session_id = await self._ask("renew")
        assert isinstance(session_id, int)
        self.session_id = session_id
        self._life.become(SessionState.CONNECTED)
        self._watches.tell_missed()

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        """All or nothing, see `MetadataStore.multi`. Raises `StoreUnavailable` if the server ends before it answers."""
        for operation in operations:
            check_path(operation.path)
        self._check_alive(operations[0].path if operations else "/")
        return decode_outcomes(await self._ask("multi", [encode_operation(one) for one in operations]))

    async def get(self, path: str) -> Node:
        """The node; raises `NoNode`."""
        node = await self.exists(path)
        if node is None:
            raise NoNode(path)
        return node

    async def exists(self, path: str) -> Node | None:
        """The node, or None."""
        [node] = await self.get_many([path])
        return node

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Each path's node or None, with one request."""
        self._check_alive(paths[0] if paths else "/")
        return decode_nodes(await self._ask("get", list(paths)))

    async def children(self, path: str) -> list[str]:
        """Names of the children, sorted; raises `NoNode`."""
        [names] = await self.children_many([path])
        if names is None:
            raise NoNode(path)
        return names

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Each path's children, or None where there is no node, with one request."""
        self._check_alive(paths[0] if paths else "/")
        return decode_children(await self._ask("children", list(paths)))

    async def close(self) -> None:
        """Ends the session on the server, if it can be reached, and closes the connection."""
        is_connected = not self._is_gone and self._life.state is not SessionState.EXPIRED
        self._watches.clear()
        if is_connected:
            try:
                await self._ask("close")
            except (SessionExpired, StoreUnavailable) as error:
                _log.debug("the session ended before it was closed", extra={"reason": str(error)})
        await self.abandon()

    async def abandon(self) -> None:
        """Closes the connection without a request to end the session; the server ends it."""
        self._watches.clear()
        self._life.end()
        self._is_gone = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._refuse_all()
        self._writer.close()

    # The connection

    async def _ask(self, verb: str, *arguments: Json) -> Json:
        if self._is_gone:
            raise SessionExpired()
        return await self._send(verb, *arguments)

    def _send(self, verb: str, *arguments: Json) -> asyncio.Future[Json]:
        number = next(self._numbers)
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._asked[number] = future, self._clock.monotonic()
        write_message(self._writer, [number, verb, *arguments])
        return future

    async def _listen(self) -> None:
        try:
            while True:
                self._hear(await read_message(self._reader))
        except (EOFError, ConnectionError, ValueError):
            self._is_gone = True
            self._refuse_all()
            self._lose("the process that serves the metadata store has gone")

    def _hear(self, message: Message) -> None:
        match message:
            case [0, "event", kind, str(path)]:
                if self._life.state is not SessionState.EXPIRED:
                    self._watches.tell([Event(EventKind(kind), path)])
            case [0, "expired"]:
                self._lose("the server did not hear of this session for too long")
            case [int(number), str(outcome), result] if number in self._asked:
                future, sent_s = self._asked.pop(number)
                self._heard_s = max(self._heard_s, sent_s)
                if not future.done():
                    self._settle(future, outcome, result)

    def _settle(self, future: asyncio.Future[Json], outcome: str, result: Json) -> None:
        if outcome == "done":
            future.set_result(result)
        else:
            future.set_exception(decode_error(result))

    async def _keep_alive(self) -> None:
        """Sends pings without waiting for answers: only the clock shows that a server is suspended."""
        ping: asyncio.Future[Json] | None = None
        while not self._is_gone:
            await asyncio.sleep(self.timeout_s / _PINGS_A_TIMEOUT)
            self._look_at_the_clock()
            is_answered = ping is None or ping.done()
            if is_answered and not self._is_gone and self._life.state is SessionState.CONNECTED:
                ping = self._send("ping")

    def _look_at_the_clock(self) -> None:
        """Ends the session if the server may have ended it, for example after this process was suspended."""
        if self._clock.monotonic() - self._heard_s > self.timeout_s:
            self._lose("the process that serves the store did not answer in time")

    def _check_alive(self, path: str) -> None:
        if self.session_state is SessionState.EXPIRED:
            raise SessionExpired(path)

    def _lose(self, reason: str) -> None:
        if self._life.state is not SessionState.EXPIRED:
            _log.warning("the session with the metadata store has ended", extra={"reason": reason})
            self._life.become(SessionState.EXPIRED)

    def _refuse_all(self) -> None:
        for future, _ in self._asked.values():
            if not future.done():
                future.set_exception(
                    StoreUnavailable("/", "the process that serves the metadata store has gone")
                )
                future.exception()  # retrieved: no call waits for the answer to a ping
