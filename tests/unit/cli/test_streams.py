"""`felice streams` over checkpoints, without Spark and without a broker."""

from __future__ import annotations

import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("pyspark")

from felice.cli import streams as command
from felice.cli.faults import Fault
from felice.cli.streams import starting_options, streams
from felice.pipelines.streams.on_spark.checkpoint_copy import describe
from felice.pipelines.streams.on_spark.directory import Checkpoint, Description
from felice.pipelines.streams.on_spark.lock import RunLock
from waiting import wait_until

PROGRESS = {"batch": 7, "rows": 5, "rows_per_s": 50, "batch_ms": 100, "behind": 2, "reported_at": 1000}


@pytest.fixture
def place(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # The locks of applications on this machine: one of the same name may run.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("locks")))
    return tmp_path


def checkpoint(place: Path, name: str = "shop") -> Checkpoint:
    made = Checkpoint(place / f"{name}-checkpoint")
    made.describe(Description(name, "Sub-topology 0", 3, {}))
    return made


def told(*words: str) -> Result:
    return CliRunner().invoke(streams, words)


def test_list_shows_each_application_with_its_last_batch(place: Path) -> None:
    checkpoint(place).report(PROGRESS)
    checkpoint(place, "broken").report({"failure": "KeyError: 'x'"})
    older = checkpoint(place, "older")
    older.describe(replace(Description("older", "", 1, {}), format=1))
    with RunLock(checkpoint(place, "busy"), "busy"):
        rows = {row["application"]: row for row in json.loads(told("list", "--json").output)}
    assert rows["shop"] | PROGRESS | {"state": "stopped", "partitions": 3} == rows["shop"] | {
        "reported_at": 1000
    }
    assert [rows[name]["state"] for name in ("busy", "broken", "?")] == ["running", "failed", "stopped"]
    assert "there is no checkpoint" in told("list", str(place / "busy-checkpoint" / "felice-streams")).output


def test_a_query_of_a_dataframe_is_left_to_its_own_program(place: Path, groups: list[str]) -> None:
    """It holds no lock, so that the commands cannot tell whether it runs."""
    found = checkpoint(place, "sold")
    found.describe(Description("sold", "Sub-topology 0", 2, {}, is_frame=True))
    assert "there is no checkpoint" in told("list").output
    for words in (["describe", "sold"], ["stop", "sold"], ["reset", "sold", "--yes"]):
        refused = told(*words)
        assert refused.exit_code == 1 and "stop the query in its own program" in refused.output
    assert found.is_used and groups == []


def test_describe_shows_topology_and_failure(place: Path) -> None:
    checkpoint(place).report(PROGRESS | {"failure": "KeyError: 'x'"})
    lines = told("describe", "shop").output.splitlines()
    assert lines[-1] == "Sub-topology 0"
    found = dict(line.split("  ", 1) for line in lines if "  " in line)
    assert found["failure"].strip() == "KeyError: 'x'"
    assert found["reported at"].strip() == "1970-01-01T00:00:01.000+00:00"


def test_describe_names_the_running_process_only_while_it_runs(place: Path) -> None:
    found = checkpoint(place)
    with RunLock(found, "shop"):
        assert json.loads(told("describe", "shop", "--json").output)["run_by"].startswith("process ")
    assert json.loads(told("describe", "shop", "--json").output)["run_by"] is None
    lines = told("describe", "shop").output.splitlines()
    assert next(line for line in lines if line.startswith("run by")).split() == ["run", "by", "-"]


@pytest.mark.parametrize(
    "words", [("describe", "shop"), ("stop", "shop"), ("reload", "shop"), ("reset", "shop", "--yes")]
)
def test_a_checkpoint_that_is_not_there_is_told(place: Path, words: tuple[str, ...]) -> None:
    result = told(*words)
    assert result.exit_code == 1 and "is no checkpoint of a stream application" in result.output


def test_stop_of_what_does_not_run_and_what_does_not_end(place: Path) -> None:
    found = checkpoint(place)
    assert "shop is not running" in told("stop", "shop").output
    with RunLock(found, "shop"):
        result = told("stop", "shop", "--timeout", "0")
        assert result.exit_code == 1 and "shop is still running after 0 s" in result.output
    assert found.stop_path.exists()


def test_reload_tells_what_the_running_process_answers(place: Path) -> None:
    found = checkpoint(place)
    assert "shop is not running" in told("reload", "shop").output
    answers = [
        {"started": ["a", "b"], "stopping": ["c"], "failed": {}},
        {"started": [], "stopping": [], "failed": {"d": "d writes no topic"}},
        {"started": [], "stopping": [], "failed": {}},
    ]
    outputs = []
    with RunLock(found, "shop"):
        for answer in answers:
            with ThreadPoolExecutor(1) as process:
                process.submit(
                    lambda answer=answer: (wait_until(found.reload_path.exists), found.answer_reload(answer))
                )
                result = told("reload", "shop")
            outputs.append((result.exit_code, result.output))
        late = told("reload", "shop", "--timeout", "0")
    assert outputs[:2] == [(0, "started: a, b\nstopping: c\n"), (1, "Error: d: d writes no topic\n")]
    assert outputs[2][0] == 0 and outputs[2][1].startswith("nothing to start or to stop")
    assert "shop has not answered after 0 s, in process" in late.output


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    deleted: list[str] = []
    monkeypatch.setattr(command, "admin_client", lambda bootstrap, command_config: None)
    monkeypatch.setattr(command, "_delete_group", lambda admin, group: deleted.append(group))
    return deleted


def test_reset_removes_state_and_group_and_notes_where_to_begin(place: Path, groups: list[str]) -> None:
    found = checkpoint(place)
    (found.path / "offsets").mkdir()
    result = told("reset", "shop", "--to", "latest", "--yes")
    assert result.output == "shop begins again from latest\n"
    assert groups == ["shop"]
    assert not (found.path / "offsets").exists() and found.description() is None
    assert found.starting() == {"startingOffsets": "latest"}
    assert [path.name for path in place.iterdir()] == ["shop-checkpoint"]


def test_a_reset_holds_for_all_machines(place: Path, groups: list[str]) -> None:
    address = f"file://{place}/far"
    here, there = (Checkpoint(place / name / "shop-checkpoint", address) for name in ("here", "there"))
    with RunLock(here, "shop"):
        describe(here, Description("shop", "Sub-topology 0", 3, {}))
    with RunLock(there, "shop"):
        assert there.is_used
        (there.path / "offsets").mkdir()
        (there.path / "offsets" / "0").write_text("v1")
    # By the directory alone, which knows its copy.
    result = told("reset", "shop", "--checkpoint", str(here.path), "--to", "latest", "--yes")
    assert result.output == "shop begins again from latest\n"
    assert Checkpoint(here.path).copy_address == address and not here.is_used
    with RunLock(there, "shop"):
        assert not there.is_used and not (there.path / "offsets").exists()
        assert there.starting() == {"startingOffsets": "latest"}


def test_describe_names_the_copy_and_the_process_that_uses_it(place: Path) -> None:
    address = f"file://{place}/far"
    found = Checkpoint(place / "shop-checkpoint", address)
    with RunLock(found, "shop"):
        describe(found, Description("shop", "Sub-topology 0", 3, {}))
        told_now = json.loads(told("describe", "shop", "--json").output)
        assert told_now["copy"] == address and told_now["copy_used_by"] == told_now["run_by"] is not None
    rows = json.loads(told("describe", "shop", "--json").output)
    assert (rows["copy"], rows["copy_used_by"], rows["run_by"]) == (address, None, None)


def test_reset_asks_and_leaves_what_runs_or_belongs_to_others(place: Path, groups: list[str]) -> None:
    found = checkpoint(place)
    assert CliRunner().invoke(streams, ["reset", "shop"], input="n\n").exit_code == 1
    with RunLock(found, "shop"):
        assert "is in use by process" in told("reset", "shop", "--yes").output
    refused = told("reset", "other", "--checkpoint", str(found.path), "--yes")
    assert "belongs to the application 'shop'" in refused.output
    assert found.is_used and groups == []


def test_reset_without_an_answer_names_the_option(place: Path, groups: list[str]) -> None:
    found = checkpoint(place)
    refused = CliRunner().invoke(streams, ["reset", "shop"], input="")
    assert refused.exit_code == 1 and "without a terminal, give --yes" in refused.output
    assert found.is_used and groups == []


def test_reset_removes_what_another_release_wrote_but_no_other_query(place: Path, groups: list[str]) -> None:
    found = checkpoint(place)
    found.describe(replace(Description("shop", "", 1, {}), format=1))
    assert told("reset", "shop", "--yes").exit_code == 0
    (found.path / "metadata").write_text("{}")
    result = told("reset", "shop", "--yes")
    assert result.exit_code == 1 and "checkpoint of another query" in result.output


def test_places_to_begin() -> None:
    assert starting_options("earliest") == {"startingOffsets": "earliest"}
    assert starting_options('{"a":{"0":5}}') == {"startingOffsets": '{"a":{"0":5}}'}
    assert starting_options("1970-01-01T00:00:01") == {"startingTimestamp": "1000"}
    assert starting_options("1970-01-01T01:00:01+01:00") == {"startingTimestamp": "1000"}
    with pytest.raises(Fault, match="--to is 'soon'"):
        starting_options("soon")
