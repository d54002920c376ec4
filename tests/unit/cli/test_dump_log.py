"""`felice dump-log` on files that a broker did not write in this form."""

from __future__ import annotations

from pathlib import Path

import pytest

from felice.cli.dump_log import dump_files
from felice.cli.faults import Fault
from unit.log.logs import batch


def test_a_file_that_is_not_named_after_an_offset_is_refused(tmp_path: Path) -> None:
    for name in ("x.log", "x.index", "².log"):
        path = tmp_path / name
        path.write_bytes(b"")
        with pytest.raises(Fault, match=f"^{name} is not named after a segment's first offset"):
            dump_files([path], deep=False)


def test_an_index_beside_a_damaged_segment_is_checked_up_to_the_damage(tmp_path: Path) -> None:
    whole = bytes(batch(["a"]))
    segment, index = tmp_path / "00000000000000000000.log", tmp_path / "00000000000000000000.index"
    segment.write_bytes(whole + whole[:30])
    # Offset 7 at position 0 is wrong; the entry behind the damage cannot be checked.
    index.write_bytes((7).to_bytes(4) + (0).to_bytes(4) + (9).to_bytes(4) + len(whole).to_bytes(4))
    with pytest.raises(Fault) as refused:
        dump_files([index], deep=False)
    assert refused.value.message.split("; ") == [
        f"{segment}: 30 bytes at position {len(whole)} are too few for a batch: a torn tail",
        f"{index}: no batch at position 0 holds offset 7",
    ]
