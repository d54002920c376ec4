"""`felice demo`, whole, as its user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the demo: pip install 'felice[demo]'")
pytest.importorskip("altair", reason="needs the demo: pip install 'felice[demo]'")

ROWS = {"flights": 336_776, "weather": 26_115, "airlines": 16, "airports": 1_458, "planes": 3_322}


@pytest.mark.felice_only
@pytest.mark.timeout(300)
def test_the_demo_agrees_with_its_source_and_leaves_nothing_behind(tmp_path: Path) -> None:
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()
    ran = subprocess.run(
        [sys.executable, "-m", "felice.cli.main", "demo", "--json"],
        cwd=here,
        env=os.environ | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    (line,) = ran.stdout.splitlines()
    summary = json.loads(line)
    assert summary["passed"]
    results = summary["topics"].pop("delays")
    assert summary["topics"] == {topic: {"produced": rows, "consumed": rows} for topic, rows in ROWS.items()}
    assert results["consumed"] == results["produced"] >= summary["windows"] == 121_366
    assert summary["seconds"]["query"] > 0
    assert list(here.iterdir()) == []
    assert list(temporary.iterdir()) == []
