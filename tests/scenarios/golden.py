"""Scenarios as text: commands, each followed by the trace that it must produce.

A file contains comments (`# ...`), commands, and below each command its trace, indented. A test runs the commands and
compares the traces. With `--rewrite` it writes the actual traces into the file; read them before you commit them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

INDENT = "    "


def run(path: Path, execute: Callable[[str], list[str]], *, rewrite: bool) -> None:
    """Run a scenario file and compare its traces; with `rewrite`, replace them."""
    expected = path.read_text()
    actual = _replay(expected, execute)
    if rewrite:
        path.write_text(actual)
        return
    assert actual == expected, f"{path.name} differs; run with --rewrite and look at the difference"


def _replay(text: str, execute: Callable[[str], list[str]]) -> str:
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(INDENT):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += [INDENT + traced for traced in execute(line)]
    return "\n".join(lines) + "\n"
