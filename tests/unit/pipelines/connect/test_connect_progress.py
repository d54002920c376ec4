"""What a worker keeps of what tasks tell, and what a task keeps of its log."""

from __future__ import annotations

import logging

import pytest

from felice.pipelines.connect.model.errors import DataError
from felice.pipelines.connect.runtime import progress
from felice.pipelines.connect.runtime.progress import Progress, kept_lines


def test_records_per_second_are_those_of_the_last_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now_s)
    one = Progress()
    for count in (100, 200, 300, 400, 500, 600, 700):
        now_s += 1
        one.take({"records": count, "failed": 0, "lag": None, "error": None})
    assert (one.to_json()["records"], one.to_json()["records_per_second"]) == (700, 100.0)
    now_s += 1
    one.take({"records": 1700, "failed": 2, "lag": 5, "error": {"text": "t"}})
    assert one.to_json() == {
        "records": 1700,
        "records_per_second": pytest.approx(1500 / 6, abs=60),
        "lag": 5,
        "failed_records": 2,
        "last_error": {"text": "t"},
    }
    now_s += 60
    assert one.to_json()["records_per_second"] == 0
    with pytest.raises(DataError):
        one.take({"records": "x"})


def test_lines_have_numbers_and_a_limit() -> None:
    one = Progress()
    one.add_lines([f"line {number}" for number in range(2500)])
    found = one.lines(0)
    assert (len(found), found[0], found[-1]["number"]) == (1000, {"number": 1501, "line": "line 1500"}, 2500)
    assert one.lines(2500) == []
    one.add_lines(["x" * 10_000])
    assert len(one.lines(2500)[0]["line"]) == 4000
    one.add_lines(["x" * 4000] * 500)
    assert len(one.lines(0)) == 65


def test_a_process_keeps_its_lines_for_the_time_of_a_task() -> None:
    log = logging.getLogger("felice.connect.x")
    with kept_lines() as lines:
        for number in range(500):
            log.info("line %d", number)
        log.debug("not kept")
        logging.getLogger("other").warning("kept")
        found = lines.take()
        assert len(found) == 200 and found[-1].endswith("WARNING other: kept") and "line 499" in found[-2]
        lines.emit(logging.LogRecord("x", logging.INFO, "", 0, "%d", ("no number",), None))
        assert lines.take() == []
    log.warning("after the task")
    assert lines.take() == [] and logging.getLogger("felice.connect").level == logging.NOTSET
