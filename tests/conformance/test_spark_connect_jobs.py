"""Tasks of Connect as jobs of Spark: side by side, refused without a slot, cancelled, succeeded, stopped, failed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from felice.testing import felice_broker

PROGRAM = Path(__file__).parent / "programs" / "connect_jobs.py"


@pytest.mark.felice_only
def test_tasks_are_jobs_of_spark(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    with felice_broker() as broker:
        for topic in ("a", "b"):
            broker.create_topic(topic, partitions=1)
        command = [sys.executable, str(PROGRAM), broker.bootstrap, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stderr[-4000:]
        found = json.loads(done.stdout.splitlines()[-1])
        lines = {
            topic: [(one.value or b"").decode() for one in broker.records(topic)] for topic in ("a", "b")
        }
    assert lines == {"a": ["first of a", "second of a"], "b": ["first of b"]}
    assert "no slot of Spark is free for task c-0: all 2 run tasks" in found["refused"]
    assert found["cancelled"] is True
    assert found["a"] == found["b"] == [True, None, "None"]
    said_goodbye, trace, failed = found["bad"]
    assert said_goodbye and failed
    assert "IsADirectoryError" in trace or "is a directory" in trace.lower()
