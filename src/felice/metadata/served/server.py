"""The server: sessions of an embedded store for other processes of this machine.

Keeps true: a session ends with its connection, or when its client sent nothing, or did not read, for the session's
            timeout: its ephemeral nodes are deleted. Requests of one connection are answered in order, and an event is
            sent when the write that it reports can be read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from asyncio import StreamReader, StreamWriter

from felice.metadata.embedded import EmbeddedSession, EmbeddedStore
from felice.metadata.served.wire import (
    Json,
    Message,
    decode_operation,
    encode_error,
    encode_nodes,
    read_message,
    write_message,
)
from felice.metadata.store import Event, SessionExpired, StoreError

__all__ = ["StoreServer"]

_log = logging.getLogger("felice.metadata")

# A client that does not read is disconnected when this many bytes wait for it.
_MAX_UNREAD_BYTES = 64 * 1024 * 1024


class StoreServer:
    """Serves connections, one session at a time each."""

    def __init__(self, store: EmbeddedStore, session_timeout_s: float) -> None:
        self._store = store
        self.session_timeout_s = session_timeout_s

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Returns when the connection ends."""
        connection = _Connection(self._store, reader, writer, self.session_timeout_s)
        await connection.run()


class _Connection:
    def __init__(
        self, store: EmbeddedStore, reader: StreamReader, writer: StreamWriter, timeout_s: float
    ) -> None:
        self._store = store
        self._reader, self._writer = reader, writer
        self._timeout_s = timeout_s
        self._session: EmbeddedSession | None = None

    async def run(self) -> None:
        try:
            self._begin_session()
            assert self._session is not None
            self._say([0, "session", self._session.session_id, self._timeout_s])
            while True:
                await self._answer(await self._next())
        except (EOFError, ConnectionError, ValueError) as end:
            _log.debug("a client of the store has gone", extra={"reason": str(end)})
        finally:
            await self._end_session()
            # Bytes that were not sent by now have no receiver.
            self._writer.transport.abort()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    async def _next(self) -> Message:
        """The next request; a client that sends nothing for too long loses its session, not its connection."""
        if self._session is not None:
            waiting = asyncio.ensure_future(read_message(self._reader))
            done, _ = await asyncio.wait([waiting], timeout=self._timeout_s)
            if done:
                return waiting.result()
            await self._expire()
            return await waiting
        return await read_message(self._reader)

    async def _answer(self, request: Message) -> None:
        number, verb, *arguments = request
        try:
            result = await self._do(verb, arguments)
        except StoreError as error:
            self._say([number, "refused", encode_error(error)])
        else:
            self._say([number, "done", result])
        await self._until_read()

    async def _until_read(self) -> None:
        """As `_next`: a client that reads nothing for too long loses its session, even if it sends requests."""
        sending = asyncio.ensure_future(self._writer.drain())
        done, _ = await asyncio.wait([sending], timeout=self._timeout_s)
        if not done:
            await self._expire()
        await sending

    async def _do(self, verb: Json, arguments: list[Json]) -> Json:
        if verb == "renew":
            await self._end_session()
            self._begin_session()
            assert self._session is not None
            return self._session.session_id
        if verb == "ping":
            return None
        if self._session is None:
            raise SessionExpired()
        match verb, arguments:
            case "multi", [[*operations]]:
                return [*await self._session.multi([decode_operation(one) for one in operations])]
            case "get", [[*paths]]:
                return encode_nodes(await self._session.get_many([str(path) for path in paths]))
            case "children", [[*paths]]:
                found = await self._session.children_many([str(path) for path in paths])
                return [None if names is None else [*names] for names in found]
            case "close", []:
                await self._end_session()
                return None
        raise ValueError(f"{verb!r} is no request")

    def _begin_session(self) -> None:
        self._session = self._store.connect()
        self._session.watch("/", self._on_event)

    async def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _expire(self) -> None:
        if self._session is not None:
            await self._end_session()
            self._say([0, "expired"])

    def _on_event(self, event: Event) -> None:
        self._say([0, "event", event.kind.value, event.path])

    def _say(self, message: Message) -> None:
        write_message(self._writer, message)
        if self._writer.transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
            self._writer.transport.abort()
