"""`SliceSender` sends exactly the slice, however slowly the peer reads."""

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import Any

import pytest

from felice.env import FileSlice, SystemDisk, SystemNetwork, network
from felice.env.network import SliceSender


async def _send(piece: FileSlice, received: bytearray, pause_s: float) -> OSError | None:
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[OSError | None] = loop.create_future()

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self.transport = transport
            transport.set_write_buffer_limits(0)
            self.sender = SliceSender(transport, loop)
            assert self.sender.uses_sendfile
            self.sender.send(piece, self.on_sent)

        def resume_writing(self) -> None:
            self.sender.go_on()

        def on_sent(self, error: OSError | None) -> None:
            self.sender.close()
            self.transport.close()
            outcome.set_result(error)

    server = await SystemNetwork().listen(Server, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while data := await reader.read(1 << 16):
        received += data
        await asyncio.sleep(pause_s)
    writer.close()
    server.close()
    return await outcome


def test_a_slice_arrives_whole_at_a_slow_reader(tmp_path: Path) -> None:
    content = bytes(range(256)) * 40_000
    file = SystemDisk().open(tmp_path / "a", create=True)
    file.pwrite(content, 0)
    received = bytearray()
    error = asyncio.run(_send(FileSlice(file, 100, len(content) - 300), received, 0.0005))
    file.close()
    assert error is None
    assert received == content[100:-200]


def test_a_slice_takes_several_turns_of_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_SENDFILE_CHUNK_BYTES", 1000)
    content = bytes(range(256)) * 20
    file = SystemDisk().open(tmp_path / "a", create=True)
    file.pwrite(content, 0)
    received = bytearray()
    error = asyncio.run(_send(FileSlice(file, 0, len(content)), received, 0))
    file.close()
    assert error is None
    assert received == content


class StuckTransport(asyncio.Transport):
    """A transport over a full socket. Written bytes stay in its buffer."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__({"socket": end})
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.written))


def test_a_slice_waits_for_bytes_in_the_transports_buffer(tmp_path: Path) -> None:
    file = SystemDisk().open(tmp_path / "a", create=True)
    file.pwrite(bytes(100_000), 0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                ours.send(bytes(100_000))
        transport = StuckTransport(ours)
        loop = asyncio.new_event_loop()
        SliceSender(transport, loop).send(FileSlice(file, 0, 100_000), lambda error: None)
        loop.close()
        assert len(transport.written) == 1
    file.close()


def test_a_file_that_is_too_short_is_an_error(tmp_path: Path) -> None:
    file = SystemDisk().open(tmp_path / "a", create=True)
    file.pwrite(b"short", 0)
    received = bytearray()
    error = asyncio.run(_send(FileSlice(file, 0, 500), received, 0))
    file.close()
    assert error is not None
    assert "ended before position 500" in str(error)
    assert received == b"short"
