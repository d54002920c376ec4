"""An HTTP server as a process: ready, signals, and an address in use."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import strangers

PROGRAM = """
import asyncio, sys
from contextlib import asynccontextmanager
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from felice.cli.faults import describe_fault
from felice.web.application import application
from felice.web.limits import Limits
from felice.web.serving import run

async def slow(request):
    print("asked", flush=True)
    await asyncio.sleep(0.5)
    return PlainTextResponse("slow but sure")

async def never(request):
    print("asked", flush=True)
    await asyncio.sleep(3600)

async def hello(request):
    return PlainTextResponse("hello")

@asynccontextmanager
async def lifespan(app):
    if sys.argv[3] == "slow":
        print("starting", flush=True)
        await asyncio.sleep(3600)
    yield
    print("stopped", flush=True)

routes = [Route("/slow", slow), Route("/never", never), Route("/hello", hello)]
try:
    app = application(routes, lifespan=lifespan, limits=Limits(stop_s=float(sys.argv[2])))
    run(app, "127.0.0.1", int(sys.argv[1]), on_ready=lambda url: print(url, flush=True))
except Exception as error:
    sys.exit(describe_fault(error) or repr(error))
"""
LIMIT_S = 60


@contextmanager
def started(port: int = 0, stop_s: float = 30.0, start: str = "quick") -> Iterator[subprocess.Popen[str]]:
    arguments = [sys.executable, "-c", PROGRAM, str(port), str(stop_s), start]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_server_after_the_request_that_is_being_answered(number: signal.Signals) -> None:
    with started() as process:
        port = int(line_of(process).removeprefix("http://127.0.0.1:"))
        with socket.create_connection(("127.0.0.1", port), LIMIT_S) as connection:
            connection.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert line_of(process) == "asked"
            process.send_signal(number)
            answer = b""
            while part := connection.recv(4096):
                answer += part
        assert answer.endswith(b"slow but sure")
        assert process.wait(LIMIT_S) == 0
        assert line_of(process) == "stopped"
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_stop_has_a_limit() -> None:
    with started(stop_s=0.2) as process:
        port = int(line_of(process).rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), LIMIT_S) as connection:
            connection.sendall(b"GET /never HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert line_of(process) == "asked"
            process.terminate()
            assert process.wait(LIMIT_S) == 0
        assert line_of(process) == "stopped"


def test_a_signal_ends_a_long_start() -> None:
    with started(start="slow") as process:
        assert line_of(process) == "starting"
        process.terminate()
        assert process.wait(LIMIT_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_service_manager_is_told_when_the_server_is_ready_and_when_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(LIMIT_S)
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with started() as process:
            assert manager.recv(100) == b"READY=1\nSTATUS=serving"
            process.terminate()
            assert manager.recv(100) == b"STOPPING=1\nSTATUS=stopping"
            assert process.wait(LIMIT_S) == 0


def test_an_address_in_use_is_one_line() -> None:
    with started() as first:
        port = int(line_of(first).rpartition(":")[2])
        with started(port) as second:
            assert second.wait(LIMIT_S) == 1
            assert second.stderr is not None
            told = second.stderr.read()
        assert told == f"cannot listen at 127.0.0.1:{port}: address already in use\n"
        assert strangers.get(port, "/hello") == (200, b"hello")


def test_a_server_starts_at_once_at_the_address_of_the_one_before() -> None:
    with started() as first:
        port = int(line_of(first).rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), LIMIT_S):
            first.terminate()
            assert first.wait(LIMIT_S) == 0
        with started(port) as second:
            assert line_of(second) == f"http://127.0.0.1:{port}"
