"""One test in three files: statements, inputs, and the expected outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from felice.pipelines.sql.functions.table import FunctionTable
from felice.pipelines.sql.offline.cases import read_json, result_of
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.scripts import statements_of
from felice.pipelines.sql.syntax.tree import AssertExists, AssertSource, AssertValues


class FileError(Exception):
    """A file that cannot be used; the text says which and why."""


def outcome_of_files(
    statements: Path,
    inputs: Path | None,
    outputs: Path | None,
    properties: dict[str, str],
    functions: FunctionTable,
) -> str | None:
    """Why the test failed; None if it passed. Raises `FileError`, also if nothing says what is expected."""
    text = _text(statements)
    if outputs is None and not _asserts(text):
        raise FileError(f"{statements} has no ASSERT statement: give the expected records with --output-file")
    case = {
        "name": statements.name,
        "statements": [text],
        "properties": properties,
        "inputs": [] if inputs is None else _list(inputs, "inputs"),
        "outputs": None if outputs is None else _list(outputs, "outputs"),
    }
    found = result_of(case, functions)
    reason: str | None = found["error"] or found["difference"]
    return reason


def _asserts(text: str) -> bool:
    """Whether the text has an assertion, or has an error that the test itself will report."""
    try:
        given = (one.statement for one in statements_of(text))
        return any(isinstance(one, AssertExists | AssertSource | AssertValues) for one in given)
    except (SqlError, RecursionError):
        return True


def _list(path: Path, name: str) -> list[Any]:
    try:
        found = read_json(_text(path))
    except ValueError as error:
        raise FileError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get(name), list):
        raise FileError(f'{path}: expected {{"{name}": [record, …]}}')
    listed: list[Any] = found[name]
    return listed


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise FileError(f"{path} is not text in UTF-8") from None
