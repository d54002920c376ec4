"""A soak of seconds: every kind of load runs and is checked. Growth needs an hour: `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.report import faults_of, load_so_far, write_report
from soak.run import soak


@pytest.mark.timeout(1800)
def test_a_quarter_of_a_minute_of_every_load_has_no_anomaly(tmp_path: Path) -> None:
    soak(tmp_path, minutes=0.25, interval_s=1, round_s=4)
    assert faults_of(tmp_path, checks_growth=False) == []
    load = load_so_far(tmp_path)
    assert load["is_complete"]
    assert {name for name, rounds in load["rounds"].items() if rounds == 0} == set()
    assert "too few to measure growth" in write_report(tmp_path)
    assert (tmp_path / "chart.html").stat().st_size > 1000
