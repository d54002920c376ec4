from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

pytest.importorskip("pandas")
pytest.importorskip("pyspark")
pytest.importorskip("altair")

import pandas as pd
from click.testing import CliRunner
from rich.console import Console

from felice.demo import main
from felice.demo.check import check_count
from felice.demo.command import demo
from felice.demo.dataset import load_dataset
from felice.demo.main import Outcome
from felice.demo.report import delays_by, print_checks, print_delays, save_chart
from felice.demo.steps import Steps
from felice.demo.topics import SOURCES, records_of, windows_of
from felice.pipelines.spark.java import JavaNotFound

WINDOWS = pd.DataFrame(
    [
        ("EWR", "UA", "United", "2013-01-01T15:00:00Z", 40, 1, 390.0, 60.0, 30.0, 0.0, 10.0),
        ("EWR", "UA", "United", "2013-01-01T16:00:00Z", 2, 2, 0.0, None, 31.0, 0.5, 2.0),
        ("JFK", "B6", "JetBlue", "2013-01-01T15:00:00Z", 31, 0, 31.0, 5.0, None, None, None),
    ],
    columns=[
        "origin", "carrier", "airline", "hour", "flights", "cancelled", "delay_sum_min", "delay_max_min",
        "temp", "precip", "visib",
    ],
).assign(hour=lambda rows: pd.to_datetime(rows["hour"]))  # fmt: skip


def text_of(show: object) -> str:
    out = io.StringIO()
    show(Console(file=out, width=120))  # type: ignore[operator]
    return out.getvalue()


def test_flights_come_in_order_of_departure_and_none_is_lost() -> None:
    data = load_dataset()
    assert [len(topic.rows(data)) for topic in SOURCES] == [336_776, 26_115, 16, 1_458, 3_322]
    departed = data.flights["departed"]
    assert departed.is_monotonic_increasing
    first = data.flights[data.flights["flight"] == 1545].iloc[0]
    assert first["departed"] == pd.Timestamp("2013-01-01 10:17", tz="UTC")
    cancelled = data.flights[data.flights["dep_delay"].isna()].iloc[0]
    assert cancelled["departed"].minute == cancelled["minute"]


def test_a_row_becomes_a_record_with_its_key_and_event_time() -> None:
    rows = pd.DataFrame(
        {"carrier": ["UA"], "dep_delay": [None], "departed": [pd.Timestamp("2013-01-01T10:17Z")]}
    )
    (record,) = records_of(SOURCES[0], rows).to_pylist()
    assert record["key"] == b"UA"
    assert json.loads(record["value"]) == {"carrier": "UA", "dep_delay": None}
    assert record["timestamp"] == pd.Timestamp("2013-01-01T10:17Z")


def test_a_table_has_no_event_time() -> None:
    assert records_of(SOURCES[2], pd.DataFrame({"carrier": ["UA"], "name": ["U"]})).column_names == [
        "key",
        "value",
    ]


def test_results_become_windows_again() -> None:
    value = {"origin": "EWR", "hour": "2013-01-01T10:00:00.000Z", "temp": None, "flights": 3}
    (row,) = windows_of([json.dumps(value).encode()]).to_dict("records")
    assert row["hour"] == pd.Timestamp("2013-01-01T10:00Z")
    assert (row["origin"], row["flights"], pd.isna(row["temp"])) == ("EWR", 3, True)


def test_means_are_over_flights_that_flew() -> None:
    means = delays_by(WINDOWS, "airline")["mean_delay_min"]
    assert means["United"] == 10.0
    assert means["JetBlue"] == 1.0


def test_the_table_names_airlines_the_most_delayed_first() -> None:
    shown = text_of(lambda console: print_delays(console, WINDOWS))
    assert shown.index("United") < shown.index("JetBlue")
    assert " 10.0 " in shown


def test_checks_say_what_disagrees() -> None:
    checks = [check_count("flights consumed", 5, 5), check_count("windows", 7, 6)]
    shown = text_of(lambda console: print_checks(console, checks))
    assert "✓ flights consumed: 5, as in the source" in shown
    assert "✗ windows: 6, but the source has 7" in shown


@pytest.mark.parametrize(("name", "begins"), [("c.png", b"\x89PNG"), ("c.svg", b"<svg"), ("c.html", b"<")])
def test_a_chart_is_saved_by_the_name_of_its_file(tmp_path: Path, name: str, begins: bytes) -> None:
    save_chart(WINDOWS, tmp_path / name)
    assert (tmp_path / name).read_bytes().lstrip().startswith(begins)


def test_a_step_is_timed_and_its_rows_counted() -> None:
    out = io.StringIO()
    steps = Steps(Console(file=out, width=120))
    with steps.step("produce", "produce flights", 30) as step:
        step.advance(10)
        step.advance(20)
    assert steps.done["produce"].rows == 30
    assert steps.done["produce"].seconds > 0
    assert "✓ produce flights" in out.getvalue()
    assert "30 rows" in out.getvalue()


def outcome(passed: bool) -> Outcome:
    return Outcome(
        produced={"flights": 3},
        consumed={"flights": 3},
        windows=2,
        seconds={"query": 1.5},
        checks=[check_count("windows", 2, 2 if passed else 1)],
    )


def test_an_outcome_without_checks_has_not_passed() -> None:
    assert not Outcome().passed


def run_demo(monkeypatch: pytest.MonkeyPatch, *arguments: str, passed: bool = True) -> tuple[int, str]:
    monkeypatch.setattr(main, "run", lambda console, keep, chart: outcome(passed))
    result = CliRunner().invoke(demo, list(arguments))
    return result.exit_code, result.output


def test_json_is_one_line_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = run_demo(monkeypatch, "--json")
    assert code == 0
    summary = json.loads(output.splitlines()[-1])
    assert summary["passed"] is True
    assert summary["topics"] == {"flights": {"produced": 3, "consumed": 3}}
    assert (summary["windows"], summary["seconds"]) == (2, {"query": 1.5})


def test_a_mismatch_is_a_failure_also_to_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = run_demo(monkeypatch, "--json", passed=False)
    assert code == 1
    assert json.loads(output.splitlines()[-1])["passed"] is False


def test_nothing_that_exists_is_overwritten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, output = run_demo(monkeypatch, "--keep", "--dir", str(tmp_path))
    assert code == 2
    assert "exists already" in output


def test_a_chart_needs_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = run_demo(monkeypatch, "--chart", "chart.gif")
    assert code == 2
    assert ".png, .svg or .html" in output


def test_a_machine_that_cannot_run_it_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(console: object, keep: object, chart: object) -> Outcome:
        raise JavaNotFound("Spark needs Java")

    monkeypatch.setattr(main, "run", run)
    result = CliRunner().invoke(demo, [])
    assert (result.exit_code, result.output) == (1, "Error: Spark needs Java\n")
