"""Free ports that no outgoing connection takes."""

import socket
from pathlib import Path

import pytest

from felice.env import ports
from felice.env.ports import free_ports


def test_free_ports_differ_and_are_below_the_ports_of_outgoing_connections() -> None:
    found = free_ports(20)
    assert len(set(found)) == 20
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as local,
    ):
        assert max(found) < local.getsockname()[1]


def test_a_port_in_use_is_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    [free] = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        used = server.getsockname()[1]
        offered = iter([used, used, free])
        monkeypatch.setattr("felice.env.ports._random.choice", lambda _: next(offered))
        assert free_ports(1) == [free]


@pytest.mark.parametrize("told", ["1024\t65000\n", "9999 65000"])
def test_if_the_system_uses_all_ports_for_connections_its_own_choice_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: str
) -> None:
    file = tmp_path / "range"
    file.write_text(told)
    monkeypatch.setattr(ports, "_EPHEMERAL_RANGE", file)
    assert len(set(free_ports(5))) == 5


@pytest.mark.parametrize("told", [None, "", "x"])
def test_without_a_known_range_the_usual_range_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: str | None
) -> None:
    file = tmp_path / "range"
    if told is not None:
        file.write_text(told)
    monkeypatch.setattr(ports, "_EPHEMERAL_RANGE", file)
    assert all(10_000 <= port < 32_768 for port in free_ports(5))
