"""The history of leader epochs, which followers and consumers query."""

from __future__ import annotations

from pathlib import Path

import pytest

from felice.env import SystemDisk
from felice.log.epochs import EpochEndOffset, EpochEntry, LeaderEpochs, format_entries, parse


@pytest.fixture
def epochs(tmp_path: Path) -> LeaderEpochs:
    epochs = LeaderEpochs(SystemDisk(), tmp_path)
    for epoch, start in [(2, 10), (4, 20), (7, 35)]:
        epochs.assign(epoch, start)
    return epochs


def test_the_file_is_kafkas_text(epochs: LeaderEpochs, tmp_path: Path) -> None:
    epochs.flush()
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n3\n2 10\n4 20\n7 35\n"
    again = LeaderEpochs(SystemDisk(), tmp_path)
    again.load()
    assert again.entries == epochs.entries


@pytest.mark.parametrize(
    "text",
    ["", "1\n0\n", "0\n2\n1 5\n", "0\n1\nx y\n", "0\n1\n1 5 9\n", "0\n2\n1 5\n1 9\n", "0\n2\n1 5\n2 5\n"],
)
def test_a_damaged_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_an_unchanged_history_is_not_written_again(epochs: LeaderEpochs) -> None:
    epochs.flush()
    epochs.assign(7, 36)
    assert epochs.capture() is None


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, (-1, -1)),
        (1, (1, 10)),
        (2, (2, 20)),
        (3, (2, 20)),
        (4, (4, 35)),
        (6, (4, 35)),
        (7, (7, 50)),
        (8, (-1, -1)),
    ],
)
def test_end_offset_for_epoch(epochs: LeaderEpochs, epoch: int, expected: tuple[int, int]) -> None:
    assert epochs.end_offset_for(epoch, log_end_offset=50) == EpochEndOffset(*expected)


def test_an_empty_history_knows_no_epoch(tmp_path: Path) -> None:
    assert LeaderEpochs(SystemDisk(), tmp_path).end_offset_for(0, 0) == EpochEndOffset(-1, -1)


@pytest.mark.parametrize(("offset", "epoch"), [(9, -1), (10, 2), (19, 2), (20, 4), (100, 7)])
def test_epoch_at_offset(epochs: LeaderEpochs, offset: int, epoch: int) -> None:
    assert epochs.epoch_at(offset) == epoch


def test_truncating_the_end_removes_epochs_that_begin_there(epochs: LeaderEpochs) -> None:
    epochs.truncate_from_end(20)
    assert epochs.entries == [EpochEntry(2, 10)]


def test_truncating_the_start_keeps_the_epoch_that_wrote_there(epochs: LeaderEpochs) -> None:
    epochs.truncate_from_start(25)
    assert epochs.entries == [EpochEntry(4, 25), EpochEntry(7, 35)]
    epochs.truncate_from_start(5)
    assert epochs.entries == [EpochEntry(4, 25), EpochEntry(7, 35)]


def test_an_epoch_that_contradicts_later_ones_replaces_them(epochs: LeaderEpochs) -> None:
    epochs.assign(5, 30)
    assert epochs.entries == [EpochEntry(2, 10), EpochEntry(4, 20), EpochEntry(5, 30)]


def test_unknown_epochs_are_not_recorded(epochs: LeaderEpochs) -> None:
    epochs.assign(-1, 60)
    assert epochs.latest == 7


def test_format_and_parse_agree() -> None:
    entries = [EpochEntry(0, 0), EpochEntry(3, 2**40)]
    assert parse(format_entries(entries)) == entries


def test_a_late_write_of_an_older_history_does_not_replace_a_newer_one(
    epochs: LeaderEpochs, tmp_path: Path
) -> None:
    older = epochs.capture()
    epochs.truncate_from_end(20)
    epochs.flush()
    assert older is not None
    older()
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n1\n2 10\n"
