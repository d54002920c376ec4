"""State in a directory, in an object store, and in a file system that renames."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("moto")

from felice.pipelines.streams.formats import FORMATS
from felice.pipelines.streams.on_spark.directory import CheckpointError, below
from felice.pipelines.streams.on_spark.places import Place, PlaceError, place_at
from felice.pipelines.streams.on_spark.state import BATCHES_PER_BASE, StateError, StateFiles
from felice.pipelines.streams.stores import KeyValueStore, Store
from peers.objects import BUCKET, running_store
from streams.places_of_state import check_files, put

KINDS = ["directory", "arrow", "s3"]


@pytest.fixture(scope="module")
def object_store() -> Iterator[str]:
    """The address of a bucket."""
    with running_store() as bucket, pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        host = bucket.url.removeprefix("http://")
        yield f"s3://{BUCKET}/apps?endpoint_override={host}&scheme=http&region=us-east-1"


@pytest.fixture(params=KINDS)
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "directory":
        return str(tmp_path / "state")
    if request.param == "arrow":
        return f"file://{tmp_path}/state"
    return below(request.getfixturevalue("object_store"), tmp_path.name)


@pytest.fixture
def place(location: str) -> Place:
    return place_at(location)


def test_files_are_written_read_listed_and_removed(place: Place) -> None:
    check_files(place)


def test_a_write_that_fails_leaves_the_file_as_it_was(place: Place) -> None:
    put(place, "a", b"one")

    def fail(file: BinaryIO) -> None:
        file.write(b"half")
        raise KeyError

    with pytest.raises(KeyError):
        place.put("a", "mark", fail)
    assert place.read("a") == b"one"


def table(rows: dict[str, int]) -> dict[str, Store]:
    store = KeyValueStore("a", FORMATS["string"], FORMATS["json"])
    for key, value in rows.items():
        store.put(key, value, 1)
    return {"a": store}


def test_versions_of_state_are_found_again(place: Place) -> None:
    files, stores = StateFiles(place), table({})
    store: Any = stores["a"]
    expected: list[dict[Any, Any]] = []
    for number in range(4 * BATCHES_PER_BASE):
        store.put(f"k{number % 7}", number, number)
        files.write(number, {"a": store.take_changes()}, stores)
        expected.append(dict(store.rows))
    newest = 4 * BATCHES_PER_BASE - 1
    for number in (newest, newest - 3):
        found = table({})
        version = files.load(number, found)
        assert found["a"].rows == expected[number] and version.identity == files.identity(number)
    assert files.size().rows == 7 and files.identity(0) is None
    with pytest.raises(StateError, match=r"0\.delta is missing"):
        files.load(3, table({}))
    # As if another worker had computed the version again.
    files.write(newest, {}, stores)
    assert files.identity(newest) != version.identity


def test_an_address_keeps_its_parameters_and_a_path_is_a_path() -> None:
    assert below("s3://bucket/a?region=b", "c", "d") == "s3://bucket/a/c/d?region=b"
    assert below("/a?b", "c") == "/a?b/c"


def test_what_cannot_be_reached_is_told() -> None:
    with pytest.raises(CheckpointError, match="state cannot be kept at hdfs://a/b: use s3://BUCKET/PATH"):
        place_at("hdfs://a/b")
    with pytest.raises(CheckpointError, match="state cannot be kept at s3://b/a.*nothing"):
        place_at("s3://b/a?nothing=1")
    with pytest.raises(CheckpointError, match="holds a login.*AWS_ACCESS_KEY_ID") as told:
        place_at("s3://key:secret@bucket/a")
    assert "secret" not in str(told.value)


def test_addresses_of_hdfs() -> None:
    with pytest.raises(CheckpointError, match="holds a login.*leave the password out"):
        place_at("webhdfs://ann:secret@host/a")
    with pytest.raises(CheckpointError, match="its port is no number"):
        place_at("webhdfs://host:port/a")
    unreachable = place_at("webhdfs://ann@127.0.0.1:9/a")
    for call in (unreachable.names, unreachable.children, lambda: unreachable.read("b")):
        with pytest.raises(PlaceError, match=r"webhdfs://ann@127.0.0.1:9/a.* cannot be read or written"):
            call()


def test_an_object_store_that_fails_is_told_without_parameters(object_store: str) -> None:
    place = place_at(object_store.replace(BUCKET, "no-such-bucket", 1))
    with pytest.raises(PlaceError, match=r"s3://no-such-bucket/apps/a cannot be read or written"):
        put(place, "a", b"one")
