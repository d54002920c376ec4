"""What docs/compatibility.md says of APIs and versions is what the broker offers."""

from __future__ import annotations

import re
from pathlib import Path

from felice.server.handlers.table import OFFERED

DOCUMENT = Path(__file__).parents[2] / "docs" / "compatibility.md"
ROW = re.compile(r"^\| (\d+) \| (\w+) \| (\d+)(?:-(\d+))? \|", re.MULTILINE)


def test_the_table_of_apis_is_the_brokers() -> None:
    said = {
        int(key): (name, int(first), int(last or first))
        for key, name, first, last in ROW.findall(DOCUMENT.read_text())
    }
    offered = {key: (api.name, api.advertised) for key, api in OFFERED.items()}
    assert said == {key: (name, versions.min, versions.max) for key, (name, versions) in offered.items()}
