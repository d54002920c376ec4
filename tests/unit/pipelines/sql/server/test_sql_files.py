"""Names of files for topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from felice.pipelines.sql.server.files import file_name


def test_plain_names_are_names_of_files() -> None:
    for name in ("CSAS_S_1", "orders-v2", "a.b", "x" * 200):
        assert file_name(name) == name


@pytest.mark.parametrize("name", ["../../ETC", "..", ".", "", "/etc/passwd", "a/b", "a b", "ä\0", "x" * 249])
def test_other_names_stay_in_the_directory(name: str) -> None:
    made = file_name(name)
    assert made == Path(made).name and len(made) < 200
    assert made not in (".", "..") and made != file_name(name + "'")
