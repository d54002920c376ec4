import contextlib
import errno
import select
import socket
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felice.client.net.low_water import MOST_BYTES, LowWater
from waiting import LIMIT_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a mark that cannot block")


class RecordingSocket:
    """Keeps the marks that are set."""

    def __init__(self) -> None:
        self.marks: list[int] = []

    def setsockopt(self, level: int, option: int, value: int) -> None:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        self.marks.append(value)


def low_water() -> tuple[RecordingSocket, LowWater]:
    sock: Any = RecordingSocket()
    return sock, LowWater(sock)


@given(st.lists(st.integers(0, 10 * MOST_BYTES)))
def test_the_mark_is_never_above_what_is_missing(missing: list[int]) -> None:
    sock, mark = low_water()
    for size in missing:
        mark.expect(size)
        assert ([1, *sock.marks])[-1] <= max(1, min(size, MOST_BYTES))


def test_small_rests_and_repeated_marks_cost_no_call() -> None:
    sock, mark = low_water()
    for size in (0, 1000, 5 << 20, 4 << 20, 300_000, 1000, 0):
        mark.expect(size)
    assert sock.marks == [MOST_BYTES, 300_000, 1]


def test_lowering_tells_whether_bytes_may_have_waited() -> None:
    sock, mark = low_water()
    assert not mark.lower()
    mark.expect(5 << 20)
    assert mark.lower()
    assert not mark.lower()
    assert sock.marks == [MOST_BYTES, 1]


class RefusingSocket:
    """Refuses marks, as a system may that lacks the option."""

    def setsockopt(self, level: int, option: int, value: int) -> None:
        raise OSError(errno.ENOPROTOOPT, "Protocol not available")


def test_a_refused_mark_does_not_break_the_connection() -> None:
    sock: Any = RefusingSocket()
    mark = LowWater(sock)
    mark.expect(5 << 20)
    assert not mark.lower()
    mark.expect(5 << 20)


def test_a_connection_without_a_plain_socket_has_no_mark() -> None:
    mark = LowWater()
    mark.expect(5 << 20)
    assert not mark.lower()


def test_the_kernel_hands_over_a_part_larger_than_its_buffer() -> None:
    """A mark above the receive buffer must not keep the reader asleep while the window is full."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        reader.connect(server.getsockname())
        writer, _ = server.accept()
        with writer:
            writer.setblocking(False)
            mark = LowWater(reader)
            sent = received = 0
            while received < MOST_BYTES:
                mark.expect(MOST_BYTES - received)
                with contextlib.suppress(BlockingIOError):
                    sent += writer.send(bytes(MOST_BYTES - sent)) if sent < MOST_BYTES else 0
                readable, _, _ = select.select([reader], [], [], LIMIT_S)
                assert readable
                received += len(reader.recv(MOST_BYTES))
