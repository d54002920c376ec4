"""State on disk: every version comes back whole, or an error says what is missing."""

from __future__ import annotations

import pickle
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.streams.formats import FORMATS
from felice.pipelines.streams.on_spark import state
from felice.pipelines.streams.on_spark.state import (
    _HEADER,
    BATCHES_PER_BASE,
    EMPTY,
    FORMAT_VERSION,
    MAGIC,
    StateError,
    StateFiles,
)
from felice.pipelines.streams.stores import Clocks, KeyValueStore, Store


def stores() -> dict[str, Store]:
    return {name: KeyValueStore(name, FORMATS["string"], FORMATS["json"]) for name in ("a", "b")}


class Batches:
    """Random batches, and the rows after each."""

    def __init__(self, directory: Path) -> None:
        self.files, self.stores = StateFiles(directory), stores()
        self.after: list[dict[str, dict[object, object]]] = []
        self.dice = Random(1)

    def run(self, count: int) -> None:
        for _ in range(count):
            for store in self.stores.values():
                assert isinstance(store, KeyValueStore)
                for _ in range(self.dice.randrange(4)):
                    value = self.dice.choice((None, [1], {"x": 2}))
                    store.put(f"k{self.dice.randrange(6)}", value, 7)
            changes = {name: store.take_changes() for name, store in self.stores.items()}
            self.files.write(len(self.after), changes, self.stores)
            self.after.append({name: dict(store.rows) for name, store in self.stores.items()})

    def loaded(self, number: int) -> dict[str, dict[object, object]]:
        found = stores()
        version = self.files.load(number, found)
        assert version.number == number and (number < 0 or version.identity == self.files.identity(number))
        return {name: dict(store.rows) for name, store in found.items()}


def test_every_kept_version_comes_back(tmp_path: Path) -> None:
    batches = Batches(tmp_path)
    assert batches.files.load(-1, stores()) == EMPTY
    batches.run(4 * BATCHES_PER_BASE + 3)
    last = len(batches.after) - 1
    for number in range(last - BATCHES_PER_BASE, last + 1):
        assert batches.loaded(number) == batches.after[number]
    assert len(list(tmp_path.iterdir())) <= 2 * BATCHES_PER_BASE + 3


def test_a_batch_that_runs_again_replaces_its_version(tmp_path: Path) -> None:
    batches = Batches(tmp_path)
    batches.run(3)
    before = batches.files.identity(2)
    again = stores()
    batches.files.load(1, again)
    again["a"].load([("k", (b"1", 9))])
    batches.files.write(2, {"a": [("k", (b"1", 9))]}, again)
    assert batches.files.identity(2) != before
    assert batches.loaded(2)["a"] == batches.after[1]["a"] | {"k": (b"1", 9)}


def test_stores_catch_up_with_later_versions(tmp_path: Path) -> None:
    batches = Batches(tmp_path)
    batches.run(9)
    held = stores()
    version = batches.files.load(3, held)
    assert batches.files.catch_up(version, 8, held).identity == batches.files.identity(8)
    assert {name: store.rows for name, store in held.items()} == batches.after[8]


def test_a_missing_version_is_told(tmp_path: Path) -> None:
    batches = Batches(tmp_path)
    batches.run(5)
    (tmp_path / "3.delta").unlink()
    with pytest.raises(StateError, match=r"3\.delta is missing"):
        batches.loaded(4)
    assert batches.loaded(2) == batches.after[2]


@pytest.mark.parametrize("place", [0, 6, 10, 18, 26, 40, -1])
def test_a_damaged_file_is_told(tmp_path: Path, place: int) -> None:
    batches = Batches(tmp_path)
    batches.run(1)
    data = bytearray((tmp_path / "0.delta").read_bytes())
    data[place] ^= 1
    (tmp_path / "0.delta").write_bytes(data)
    with pytest.raises(StateError, match="is damaged"):
        batches.loaded(0)
    (tmp_path / "0.delta").write_bytes(data[:5])
    with pytest.raises(StateError, match="is damaged"):
        batches.loaded(0)


def test_a_format_of_another_release_is_told(tmp_path: Path) -> None:
    batches = Batches(tmp_path)
    batches.run(1)
    data = (tmp_path / "0.delta").read_bytes()
    _, _, checksum = _HEADER.unpack_from(data)
    header = _HEADER.pack(MAGIC, FORMAT_VERSION + 1, checksum)
    (tmp_path / "0.delta").write_bytes(header + data[_HEADER.size :])
    with pytest.raises(StateError, match=f"has format {FORMAT_VERSION + 1}"):
        batches.loaded(0)


def test_a_version_says_how_large_it_is(tmp_path: Path) -> None:
    batches = Batches(tmp_path)
    batches.run(BATCHES_PER_BASE + 2)
    size = batches.files.size()
    assert size.rows == sum(len(rows) for rows in batches.after[-1].values())
    assert size.stream_time == -1
    newest = ["9.base", "10.delta", "11.delta"]
    assert size.size_bytes == sum((tmp_path / name).stat().st_size for name in newest)


def test_stream_time_is_the_latest_of_the_clocks(tmp_path: Path) -> None:
    clocks = Clocks("clocks")
    clocks.advance("one", 7)
    clocks.advance("other", 9)
    clocks.set("join oldest", 1 << 62)  # of a join that waits for nothing
    files = StateFiles(tmp_path)
    files.write(0, {}, {"clocks": clocks})
    assert files.size().stream_time == 9


def test_what_killed_processes_wrote_aside_is_removed(tmp_path: Path) -> None:
    batches = Batches(tmp_path)
    (tmp_path / ".3.delta.abc").write_bytes(b"half")
    batches.run(4 * BATCHES_PER_BASE)
    (tmp_path / ".45.delta.abc").write_bytes(b"half")
    batches.run(BATCHES_PER_BASE)
    assert [path.name for path in tmp_path.glob(".*")] == [".45.delta.abc"]


def test_a_first_version_needs_none_before_it(tmp_path: Path) -> None:
    batches = Batches(tmp_path / "old")
    batches.run(5)
    StateFiles(tmp_path / "new").write_first(4, batches.stores)
    found = stores()
    files = StateFiles(tmp_path / "new")
    assert files.load(4, found).identity == files.identity(4)
    assert {name: store.rows for name, store in found.items()} == batches.after[4]
    files.write(5, {}, found)
    assert files.load(5, stores()).number == 5


def test_a_value_that_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    batches = Batches(tmp_path)
    with pytest.raises(StateError, match="of type PosixPath cannot be kept in state"):
        batches.files.write(0, {"a": [(b"k", (Path("x"), 1))]}, batches.stores)
    assert not list(tmp_path.glob("*.delta"))


def test_a_file_can_hold_plain_values_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = Batches(tmp_path)
    monkeypatch.setattr(state, "_OnlyPlain", pickle.Pickler)
    batches.files.write(0, {"a": [(b"k", (Path("x"), 1))]}, batches.stores)
    with pytest.raises(pickle.UnpicklingError, match="no plain value"):
        batches.loaded(0)


def test_the_files_of_an_earlier_release_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They name rows by packed keys; newer files beside them by the keys' bytes."""
    made = KeyValueStore("a", FORMATS["json"], FORMATS["json"])
    files = StateFiles(tmp_path)
    old = [
        (1, ("int", 7)),
        ("1", ("text", 7)),
        (b'{"b":1}', (b"[2]", 7)),
        (1.5, (3, 7)),
        (float("nan"), (0, 7)),
    ]
    monkeypatch.setattr(state, "FORMAT_VERSION", 2)
    files.write(0, {"a": old}, {"a": made})
    monkeypatch.undo()
    files.write(1, {"a": [(b"1.5", None), (b"true", (True, 8))]}, {"a": made})
    files.load(1, {"a": made})
    assert made.rows == {
        b"1": ("int", 7),
        b'"1"': ("text", 7),
        b'{"b":1}': (b"[2]", 7),
        b"true": (True, 8),
    }
