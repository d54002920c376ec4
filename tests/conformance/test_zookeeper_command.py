"""`felice zookeeper`: starts an ensemble, watches it while it runs, and shows its nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from felice.cli.main import felice
from felice.cli.main import run as run_command
from felice.cli.zookeeper import zookeeper
from felice.ensemble import Ensemble, node_status
from peers.zookeeper import require_ensemble
from waiting import wait_until

COMMAND = [sys.executable, "-m", "felice.cli.main", "zookeeper"]


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with require_ensemble(tmp_path_factory.mktemp("zookeeper"), nodes=1) as ensemble:
        yield ensemble


def serves(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        return node_status(host, int(port)) is not None
    except OSError:
        return False


def test_three_nodes_start_are_watched_over_and_end_together(ensemble: Ensemble, tmp_path: Path) -> None:
    command = [*COMMAND, "start", "--nodes", "3", "--port", "0", "--data-dir", str(tmp_path / "zk"), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            said: Any = json.loads(process.stdout.readline())
            addresses = said["connect"].split(",")
            assert [node["address"] for node in said["nodes"]] == addresses
            assert said["leader"] in (1, 2, 3)
            wait_until(lambda: all(serves(address) for address in addresses))
            killed = said["nodes"][0]
            os.kill(killed["pid"], signal.SIGKILL)
            told = process.stderr.readline()
            assert told == f"node 1 at {killed['address']} ended (signal 9); it is started again\n"
            wait_until(lambda: serves(killed["address"]))
            config = (tmp_path / "zk" / "node-1" / "zoo.cfg").read_text()
            assert f"clientPort={killed['address'].rpartition(':')[2]}\n" in config
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
        assert process.stderr.read() == "stopping ZooKeeper\n"
    assert not any(serves(address) for address in addresses)


def test_nodes_do_not_outlive_a_command_that_was_killed(tmp_path: Path, ensemble: Ensemble) -> None:
    command = [*COMMAND, "start", "--nodes", "1", "--port", "0", "--data-dir", str(tmp_path / "zk"), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        [node] = json.loads(process.stdout.readline())["nodes"]
        wait_until(lambda: serves(node["address"]))
        process.kill()
    wait_until(lambda: not serves(node["address"]))


def test_a_port_that_is_in_use_is_named_and_nothing_is_left_behind(
    ensemble: Ensemble, tmp_path: Path
) -> None:
    port = ensemble.nodes[0].port
    done = subprocess.run(
        [*COMMAND, "start", "--nodes", "1", "--port", str(port), "--data-dir", str(tmp_path / "zk")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert (
        done.stderr
        == f"error: port {port} of 127.0.0.1 cannot be used: it is in use; choose others with --port\n"
    )
    assert not (tmp_path / "zk").exists()


def ask(*arguments: str) -> str:
    result = CliRunner().invoke(zookeeper, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def test_the_nodes_of_an_ensemble_are_shown(ensemble: Ensemble, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("--connect", ensemble.connect)
    [row] = json.loads(ask("status", "--json", *at))
    assert (row["mode"], row["version"][:2]) == ("standalone", "3.")
    assert ask("ls", *at) == "zookeeper\n"
    assert "/zookeeper/quota\n" in ask("ls", "-r", *at)
    node = json.loads(ask("get", "/zookeeper", "--json", *at))
    assert (node["path"], node["data"], node["version"], node["ephemeral_owner"]) == (
        "/zookeeper",
        "",
        0,
        None,
    )
    exported = {one["path"]: one["data"] for one in json.loads(ask("export", *at))["nodes"]}
    assert exported.keys() >= {"/zookeeper", "/zookeeper/quota"}
    assert exported["/zookeeper"] == ""
    assert run_command(felice, ["zookeeper", "get", "/none", *at]) == 1
    assert "error: /none: no such node" in capsys.readouterr().err
    # Looking makes nothing.
    assert run_command(felice, ["zookeeper", "ls", "--connect", f"{ensemble.connect}/none"]) == 1
    assert ask("ls", *at) == "zookeeper\n"


def test_status_fails_where_nobody_leads(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(felice, ["zookeeper", "status", "--connect", "127.0.0.1:1"]) == 1
    captured = capsys.readouterr()
    assert "not reached (connection refused)" in captured.out
    assert "none of the servers of 127.0.0.1:1 leads" in captured.err
