"""State of stream applications in a real HDFS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("fsspec")

from felice.pipelines.streams.formats import FORMATS
from felice.pipelines.streams.on_spark.places import place_at
from felice.pipelines.streams.on_spark.state import StateError, StateFiles
from felice.pipelines.streams.stores import KeyValueStore
from peers.hdfs import running_hdfs
from streams.places_of_state import check_files


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as started:
        yield started.url


def test_files_are_written_read_listed_and_removed(hdfs: str) -> None:
    check_files(place_at(f"{hdfs}/files"))


def test_versions_of_state_are_found_again(hdfs: str) -> None:
    files, store = (
        StateFiles(place_at(f"{hdfs}/state")),
        KeyValueStore("a", FORMATS["string"], FORMATS["json"]),
    )
    expected: list[dict[Any, Any]] = []
    for number in range(12):
        store.put(f"k{number % 7}", number, number)
        files.write(number, {"a": store.take_changes()}, {"a": store})
        expected.append(dict(store.rows))
    for number in (11, 9, 4):
        found = KeyValueStore("a", FORMATS["string"], FORMATS["json"])
        version = StateFiles(place_at(f"{hdfs}/state")).load(number, {"a": found})
        assert found.rows == expected[number] and version.identity == files.identity(number)
    place_at(f"{hdfs}/state").remove("11.delta")
    with pytest.raises(StateError, match=r"11\.delta is missing"):
        files.load(11, {"a": KeyValueStore("a", FORMATS["string"], FORMATS["json"])})
