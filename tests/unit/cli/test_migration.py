"""`felice import` and `felice export`: reports for people and for programs, and mistakes in one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from felice.cli.main import felice, run
from unit.migration.kafka_files import (
    CLUSTER,
    HEAD,
    T,
    batch,
    fingerprint,
    log_directory,
    metadata_directory,
    metadata_log,
    topic,
)

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def kafka(tmp_path: Path) -> Path:
    path = log_directory(
        tmp_path / "kafka", {("t", 0): (T, {0: batch([b"a"], 0)}), ("x", 0): (UUID(int=9), {0: b""})}
    )
    metadata_directory(path, {0: metadata_log([*HEAD, *topic("t", T)])})
    return path


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)

    def invoke(*arguments: object) -> tuple[int, str, str]:
        code = run(felice, list(map(str, arguments)))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return invoke


def test_a_dry_run_tells_and_writes_nothing(kafka: Path, tmp_path: Path, call: Call) -> None:
    before = fingerprint(tmp_path)
    code, out, err = call("import", kafka, "--dry-run")
    assert (code, err) == (0, "")
    assert f"Node 1 of cluster {CLUSTER}: 1 topics, 1 partitions" in out
    assert "no topic of the metadata has this name and id" in out
    assert "Nothing was written (--dry-run)." in out
    code, out, _ = call("import", kafka, "--dry-run", "--json")
    facts = json.loads(out)
    assert facts["counts"]["topics"] == 1
    assert facts["copied_bytes"] is None
    assert [one["kind"] for one in facts["left"]] == ["directory"]
    assert fingerprint(tmp_path) == before


def test_there_and_back(kafka: Path, tmp_path: Path, call: Call) -> None:
    code, out, _ = call("import", kafka, "--to", tmp_path / "felice")
    assert code == 0
    assert f"Start the broker with node.id=1 and log.dirs={tmp_path / 'felice'}" in out
    code, out, _ = call("export", tmp_path / "felice", "--to", tmp_path / "back", "--json")
    assert code == 0
    assert json.loads(out)["counts"]["partitions"] == 1
    log = Path("t-0") / f"{0:020}.log"
    assert (tmp_path / "back" / log).read_bytes() == (kafka / log).read_bytes()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["import", "KAFKA"], "error: name the new directory with --to, or only look with --dry-run"),
        (["export", "KAFKA", "--to", "NEW"], "error: KAFKA has no metadata: name the first of log.dirs"),
        (
            ["import", "EMPTY", "--to", "NEW"],
            "error: EMPTY has no meta.properties: it is no entry of log.dirs",
        ),
        (
            ["import", "KAFKA", "--to", "EMPTY/x", "--to", "NEW"],
            "error: 1 directories are read and 2 are to be made",
        ),
        (["import", "KAFKA", "--to", "KAFKA/new"], "error: KAFKA/new overlaps with a directory that is read"),
        (["import", "KAFKA", "--to", "NEW", "--without-metadata"], "has the metadata of its cluster (KRaft)"),
        (["import", "KAFKA", "--znodes", "EMPTY/n", "--without-metadata", "--to", "NEW"], "choose one"),
        (["import", "KAFKA", "--znodes", "EMPTY/n", "--to", "NEW"], "error: this is not the output of"),
    ],
)
def test_mistakes_are_one_line(
    kafka: Path, tmp_path: Path, call: Call, words: list[str], reason: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "n").touch()
    places = {"KAFKA": str(kafka), "EMPTY": str(tmp_path / "empty"), "NEW": str(tmp_path / "new")}

    def filled(text: str) -> str:
        for name, path in places.items():
            text = text.replace(name, path)
        return text

    code, out, err = call(*map(filled, words))
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert filled(reason) in err
    assert not (tmp_path / "new").exists()
