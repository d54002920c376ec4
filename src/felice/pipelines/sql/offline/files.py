"""One test in three files: statements, inputs, and the expected outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from felice.pipelines.sql.functions.table import FunctionTable
from felice.pipelines.sql.offline.cases import read_json, result_of


class FileError(Exception):
    """A file that cannot be used; the text says which and why."""


def outcome_of_files(
    statements: Path,
    inputs: Path | None,
    outputs: Path,
    properties: dict[str, str],
    functions: FunctionTable,
) -> str | None:
    """Why the test failed; None if it passed. Raises `FileError`."""
    case = {
        "name": statements.name,
        "statements": [_text(statements)],
        "properties": properties,
        "inputs": [] if inputs is None else _list(inputs, "inputs"),
        "outputs": _list(outputs, "outputs"),
    }
    found = result_of(case, functions)
    reason: str | None = found["error"] or found["difference"]
    return reason


def _list(path: Path, name: str) -> list[Any]:
    try:
        found = read_json(_text(path))
    except ValueError as error:
        raise FileError(f"{path} is no JSON: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get(name), list):
        raise FileError(f'{path}: expected {{"{name}": [record, …]}}')
    listed: list[Any] = found[name]
    return listed


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}") from None
