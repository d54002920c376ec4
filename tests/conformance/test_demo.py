"""`felice demo`, run as a user runs it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from interrupts import heed_interrupts

pytest.importorskip("pyspark", reason="needs the demo: pip install 'felice[demo]'")
pytest.importorskip("altair", reason="needs the demo: pip install 'felice[demo]'")

ROWS = {"flights": 336_776, "weather": 26_115, "airlines": 16, "airports": 1_458, "planes": 3_322}


@pytest.mark.felice_only
@pytest.mark.timeout(1500)
def test_the_demo_passes_its_checks_and_leaves_no_files(tmp_path: Path) -> None:
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()
    ran = subprocess.run(
        [sys.executable, "-m", "felice.cli.main", "demo", "--json"],
        cwd=here,
        env=os.environ | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=1400,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    (line,) = ran.stdout.splitlines()
    summary = json.loads(line)
    assert summary["passed"]
    results = summary["topics"].pop("delays")
    assert summary["topics"] == {topic: {"produced": rows, "consumed": rows} for topic, rows in ROWS.items()}
    assert results["consumed"] == results["produced"] >= summary["windows"] == 116_904
    assert summary["seconds"]["query"] > 0
    assert list(here.iterdir()) == []
    assert list(temporary.iterdir()) == []


@pytest.mark.felice_only
@pytest.mark.timeout(900)
@pytest.mark.parametrize("reached", ["✓ produce planes", "✓ start Spark"])
def test_ctrl_c_while_spark_runs_ends_without_a_traceback_or_files(tmp_path: Path, reached: str) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-u", "-m", "felice.cli.main", "demo"],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )
    assert demo.stdout is not None
    for line in demo.stdout:
        if line.startswith(reached):
            break
    time.sleep(1.5)
    demo.send_signal(signal.SIGINT)
    _, errors = demo.communicate(timeout=300)
    assert demo.returncode == 130
    assert errors.strip() == ""
    assert list(tmp_path.iterdir()) == []
