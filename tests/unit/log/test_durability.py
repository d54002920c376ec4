"""What the first flush of a loaded log must sync, by how the log was left."""

from __future__ import annotations

from pathlib import Path

import pytest

from felice.log.flush import Flush

from .logs import append, open_log


def first_flush(directory: Path, *, recovery_point: int, is_clean: bool) -> tuple[int, Flush]:
    """The recovery point of the loaded log, and its flush after one more batch."""
    log = open_log(directory, recovery_point=recovery_point, clean_shutdown=is_clean)
    loaded_with = log.recovery_point
    append(log, "later")
    flush = log.begin_flush()
    assert flush is not None
    flush.run()
    log.end_flush(flush)
    assert (flush.error, log.recovery_point) == (None, log.log_end_offset)
    log.close()
    return loaded_with, flush


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The directory of a log with three batches, closed."""
    log = open_log(tmp_path / "events-0")
    for value in "abc":
        append(log, value)
    log.close()
    return tmp_path / "events-0"


def test_a_clean_stop_leaves_everything_on_disk(written: Path) -> None:
    loaded_with, flush = first_flush(written, recovery_point=1, is_clean=True)
    assert loaded_with == 3
    assert not flush.names_changed, "the names of the files were synced by the stop"


def test_an_unclean_stop_leaves_what_lies_below_the_recovery_point(written: Path) -> None:
    loaded_with, flush = first_flush(written, recovery_point=1, is_clean=False)
    assert loaded_with == 1
    assert flush.names_changed
    assert flush.with_parent, "the name of the log's directory may not be on disk"


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_new_log_syncs_its_names(tmp_path: Path, is_clean: bool) -> None:
    loaded_with, flush = first_flush(tmp_path / "new-0", recovery_point=0, is_clean=is_clean)
    assert loaded_with == 0
    assert flush.names_changed
    assert flush.with_parent
