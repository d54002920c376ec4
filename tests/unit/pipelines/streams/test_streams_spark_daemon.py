"""The daemon forks workers from a process that has imported what they need, and that has one thread."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any
from unittest.mock import Mock

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.spark import java
from felice.pipelines.streams.on_spark import daemon, runner
from felice.pipelines.streams.on_spark.runner import WORKER_MEMORY

IN_A_PROCESS = """
import gc, sys
from felice.pipelines.streams.on_spark import daemon
daemon.daemon.manager = lambda: print(gc.get_freeze_count() > 0, set(daemon.IMPORTED) <= set(sys.modules))
daemon.main()
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="the system does not tell its threads")
def test_what_workers_need_is_imported_before_they_are_forked() -> None:
    # Spark sets the number of threads of numerical libraries.
    environment = os.environ | WORKER_MEMORY | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["True", "True"], run.stderr


def test_pysparks_daemon_takes_over_if_an_import_has_started_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Replaced(Exception):
        pass

    def execute(path: str, arguments: list[str]) -> Any:
        raise Replaced(*arguments)

    monkeypatch.setattr(daemon, "_has_one_thread", lambda: False)
    monkeypatch.setattr(os, "execv", execute)
    monkeypatch.setattr(sys, "argv", ["daemon", "pyspark.worker"])
    with pytest.raises(Replaced) as replaced:
        daemon.main()
    assert replaced.value.args == (sys.executable, "-m", "pyspark.daemon", "pyspark.worker")


@pytest.mark.parametrize(
    ("master", "module", "options"),
    [
        ("local[2]", daemon.__name__, java.OPTIONS),
        ("spark://host:7077", None, None),
        ("sc://host", None, None),
    ],
)
def test_only_processes_of_this_machine_get_settings_for_few_resources(
    master: str, module: str | None, options: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "session", lambda name, master, *, config: Mock(config=config))
    for variable in java.ENVIRONMENT:
        monkeypatch.setenv(variable, "")  # So that the end of the test restores it.
        monkeypatch.delenv(variable)
    made: Any = runner.session_for_applications("app", master)
    made._jvm.SparkSession.setActiveSession.assert_called_once_with(made._jsparkSession)
    found = made.config
    assert found.get("spark.python.daemon.module") == module
    assert found.get("spark.driver.defaultJavaOptions") == options
    assert all((variable in os.environ) == (options is not None) for variable in java.ENVIRONMENT)


def test_the_users_environment_of_java_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "session", lambda name, master, *, config: Mock(config=config))
    for variable in java.ENVIRONMENT:
        monkeypatch.setenv(variable, "9")
    runner.session_for_applications("app", "local[2]")
    assert [os.environ[variable] for variable in java.ENVIRONMENT] == ["9"] * len(java.ENVIRONMENT)
