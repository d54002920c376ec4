"""A minimal ZooKeeper server: it begins a session; a test decides its answers and events."""

from __future__ import annotations

import asyncio
import struct

PING_XID, WATCH_XID = -2, -1
_HEADER = struct.Struct("!iqi")


class FakeZooKeeper:
    """`async with FakeZooKeeper() as server`; one client at a time."""

    def __init__(self, timeout_ms: int = 10_000) -> None:
        self.timeout_ms = timeout_ms
        self.received: asyncio.Queue[int] = asyncio.Queue()
        """The xids of requests, pings left out."""
        self.ignored = 0
        """How many of the next connections get no answer."""

    async def __aenter__(self) -> FakeZooKeeper:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        self.drop()

    def drop(self) -> None:
        """Ends the last connection without a word."""
        self._writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        try:
            await self._frame(reader)
            if self.ignored > 0:
                self.ignored -= 1
                await reader.read()
                writer.close()
                return
            self._send(struct.pack("!iiqi16s?", 0, self.timeout_ms, 77, 16, b"", False))
            while True:
                (xid,) = struct.unpack_from("!i", await self._frame(reader))
                if xid != PING_XID:
                    await self.received.put(xid)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _frame(self, reader: asyncio.StreamReader) -> bytes:
        return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))

    def _send(self, body: bytes) -> None:
        self._writer.write(len(body).to_bytes(4, "big") + body)

    def answer(self, xid: int, body: bytes = b"") -> None:
        self._send(_HEADER.pack(xid, 1, 0) + body)

    def tell(self, kind: int, path: str) -> None:
        """A watch event: it comes without a request."""
        encoded = path.encode()
        self.answer(WATCH_XID, struct.pack(f"!iii{len(encoded)}s", kind, 3, len(encoded), encoded))
