"""The jars and configuration files of a ZooKeeper node."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

from felice.ensemble import Ensemble, EnsembleError
from felice.ensemble.files import Ports, find_jars, node_config


def test_a_nodes_configuration_names_its_peers_and_scales_with_the_tick() -> None:
    ports = [Ports(2181, 2888, 3888), Ports(2182, 2889, 3889)]
    lines = node_config(Path("/data"), "127.0.0.1", ports, 2, 200, {"forceSync": "no"}).splitlines()
    assert {
        "clientPort=2182",
        "dataDir=/data",
        "tickTime=200",
        "initLimit=100",
        "syncLimit=25",
        "forceSync=no",
    } <= set(lines)
    assert lines[-2:] == ["server.1=127.0.0.1:2888:3888", "server.2=127.0.0.1:2889:3889"]
    alone = node_config(Path("/data"), "127.0.0.1", ports[:1], 1, 2000, {})
    assert "server." not in alone.replace("enableServer", "")


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnsembleError, match=r"pip install 'felice\[spark\]'"):
        find_jars(with_logs=True, with_tls=False)


def test_a_pyspark_without_the_jar_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    with pytest.raises(EnsembleError, match=r"does not carry zookeeper-3\*\.jar"):
        find_jars(with_logs=False, with_tls=False)


def test_the_error_without_java_names_zookeeper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from felice.ensemble import ensemble
    from felice.env.java import JavaNotFound

    def find_none() -> None:
        raise JavaNotFound("Spark needs Java 17 or newer: install one and set JAVA_HOME")

    pytest.importorskip("pyspark")
    monkeypatch.setattr(ensemble, "find_java", find_none)
    with pytest.raises(EnsembleError, match="ZooKeeper needs Java 17"):
        Ensemble(tmp_path, 1)


def test_ports_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EnsembleError, match="need ports up to 66709; there are 65535"):
        Ensemble(tmp_path, 3, 65_000)
