"""The settings with which stream applications start Spark."""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import Mock

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.spark import java
from felice.pipelines.streams.on_spark import runner


@pytest.mark.parametrize(
    ("master", "options"),
    [
        ("local[2]", java.OPTIONS),
        ("spark://host:7077", None),
        ("sc://host", None),
    ],
)
def test_only_processes_of_this_machine_get_settings_for_few_resources(
    master: str, options: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "session", lambda name, master, *, config: Mock(config=config))
    for variable in java.ENVIRONMENT:
        monkeypatch.setenv(variable, "")  # So that the end of the test restores it.
        monkeypatch.delenv(variable)
    made: Any = runner.session_for_applications("app", master)
    made._jvm.SparkSession.setActiveSession.assert_called_once_with(made._jsparkSession)
    found = made.config
    assert found.get("spark.driver.defaultJavaOptions") == options
    assert all((variable in os.environ) == (options is not None) for variable in java.ENVIRONMENT)


def test_the_users_environment_of_java_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "session", lambda name, master, *, config: Mock(config=config))
    for variable in java.ENVIRONMENT:
        monkeypatch.setenv(variable, "9")
    runner.session_for_applications("app", "local[2]")
    assert [os.environ[variable] for variable in java.ENVIRONMENT] == ["9"] * len(java.ENVIRONMENT)
