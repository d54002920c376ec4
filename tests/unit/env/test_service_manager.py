"""Datagrams to systemd: when the service is ready, alive and stopping."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from felice.env.service_manager import ServiceManager


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(path))
        listening.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        yield listening


def test_readiness_and_stop_are_reported(systemd: socket.socket) -> None:
    manager = ServiceManager()
    manager.ready("serving")
    manager.stopping()
    manager.stopped()
    assert systemd.recv(1000) == b"READY=1\nSTATUS=serving"
    assert systemd.recv(1000) == b"STOPPING=1\nSTATUS=stopping"


def test_the_watchdog_is_told_twice_in_its_time(
    systemd: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "20000")

    async def scenario() -> list[bytes]:
        manager = ServiceManager()
        manager.ready("serving")
        received = [await asyncio.to_thread(systemd.recv, 1000) for _ in range(4)]
        manager.stopped()
        return received

    assert asyncio.run(scenario())[1:] == [b"WATCHDOG=1"] * 3


def test_the_watchdog_of_another_process_is_left_to_it(
    systemd: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    manager = ServiceManager()
    manager.ready("serving")  # would need an event loop to watch
    assert systemd.recv(1000).startswith(b"READY=1")


def test_an_address_in_the_abstract_namespace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = f"felice-{tmp_path.name}-{id(tmp_path)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        listening.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        ServiceManager().stopping()
        assert listening.recv(1000).startswith(b"STOPPING=1")


def test_without_systemd_nothing_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    ServiceManager().ready("serving")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    ServiceManager().ready("serving")
