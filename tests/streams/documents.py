"""Programs in documents, and the tests that stand below them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"


def blocks(document: str, kind: str) -> dict[str, str]:
    """The Python blocks of a document that are marked with this kind, by name."""
    text = (DOCS / document).read_text()
    return dict(re.findall(rf"<!-- {kind}: ([\w -]+) -->\n```python\n(.*?)```", text, re.DOTALL))


def count_blocks(document: str) -> int:
    """The number of all Python blocks of a document."""
    return (DOCS / document).read_text().count("```python")


def run_block(document: str, name: str, code: str, **given: Any) -> dict[str, Any]:
    """Run a block, and return what it defines."""
    exec(compile(code, f"{document}: {name}", "exec"), given)
    return given
