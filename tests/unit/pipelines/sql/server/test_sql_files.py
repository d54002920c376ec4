"""Names of files for queries and topics, and which checkpoints are deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from felice.pipelines.sql.server.files import file_name
from felice.pipelines.sql.server.on_spark import SparkQueries
from waiting import wait_until


def test_plain_names_are_names_of_files() -> None:
    for name in ("CSAS_S_1", "orders-v2", "a.b", "x" * 200):
        assert file_name(name) == name


@pytest.mark.parametrize("name", ["../../ETC", "..", ".", "", "/etc/passwd", "a/b", "a b", "ä\0", "x" * 249])
def test_other_names_stay_in_the_directory(name: str) -> None:
    made = file_name(name)
    assert made == Path(made).name and len(made) < 200
    assert made not in (".", "..") and made != file_name(name + "'")


def test_only_checkpoints_of_queries_that_are_gone_are_deleted(tmp_path: Path) -> None:
    for name in ("CSAS_A_1", file_name("CSAS_a/b_2"), "CSAS_C_3"):
        (tmp_path / name / "felice-streams").mkdir(parents=True)
    (tmp_path / "photos").mkdir()
    queries = SparkQueries("test", "localhost:1", "local[1]", tmp_path, {})
    queries.start()
    queries.want({}, frozenset({"CSAS_A_1", "CSAS_a/b_2"}))
    wait_until(lambda: not (tmp_path / "CSAS_C_3").exists(), 10)
    queries.stop()
    assert {one.name for one in tmp_path.iterdir()} == {"CSAS_A_1", file_name("CSAS_a/b_2"), "photos"}
