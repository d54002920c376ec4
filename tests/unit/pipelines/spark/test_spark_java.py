"""The options of Java where Spark runs on one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.spark.java import COLLECTOR, options_for_few_resources


def test_a_collector_of_the_user_is_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert COLLECTOR in options_for_few_resources()
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.extraJavaOptions -XX:+UseZGC")
    without = options_for_few_resources()
    assert COLLECTOR not in without and "-XX:TieredStopAtLevel=1" in without
    (tmp_path / "spark-defaults.conf").unlink()
    for variable in ("JAVA_TOOL_OPTIONS", "PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS"):
        with monkeypatch.context() as patched:
            patched.setenv(variable, "--conf spark.driver.extraJavaOptions=-XX:+UseG1GC pyspark-shell")
            assert COLLECTOR not in options_for_few_resources()
