"""Java and Python on one machine talk through Unix sockets, and on others as Spark does by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.spark import session
from felice.pipelines.spark.worker_python import directory_of_workers

ENABLED, DIRECTORY = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"


@pytest.mark.parametrize("master", ["local[2]", "local[*]", "sc://local[2]"])
def test_a_session_of_this_machine_uses_unix_sockets(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    short = Path("/tmp/felice-python-x")
    monkeypatch.setattr(session, "directory_of_workers", lambda: short)
    assert session._local_config(master) == {ENABLED: "true", DIRECTORY: str(short)}


@pytest.mark.parametrize("master", ["spark://host:7077", "sc://host", "yarn"])
def test_other_masters_have_sparks_own_setting(master: str) -> None:
    assert session._local_config(master) == {}


def test_a_directory_whose_path_is_too_long_for_sockets_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "directory_of_workers", lambda: directory_of_workers() / ("x" * 60))
    assert session._local_config("local[2]") == {}
