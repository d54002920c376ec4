"""Tables, titles and lines of name and value, in the look of ksqlDB's shell."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_ANY_WIDTH = 10_000
# The characters of each kind of line: at its left, within a cell, between cells, and at its right.
_BOX = "    \n  | \n----\n  | \n    \n    \n  | \n----\n"
_NAME_WIDTH = 20


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], width: int | None) -> str:
    """A table, between lines. Long values go on in the next line if it would be wider than the screen."""
    from rich.box import Box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=Box(_BOX, ascii=True), pad_edge=False, padding=(0, 1))
    for name in columns:
        shown.add_column(Text(name), overflow="fold", no_wrap=width is None)
    for row in rows:
        shown.add_row(*(Text(str(value)) for value in row))
    console = Console(file=io.StringIO(), width=width or _ANY_WIDTH, color_system=None, legacy_windows=False)
    with console.capture() as captured:
        console.print(shown)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def title(text: str) -> str:
    """A title with a line below."""
    return f"{text}\n{'-' * len(text)}"


def fields(pairs: Iterable[tuple[str, object]], name_width: int = _NAME_WIDTH) -> str:
    """Lines of name and value."""
    return "\n".join(f"{name:{name_width}} : {value}".rstrip() for name, value in pairs)


def of(row: Mapping[str, Any], *names: str) -> str:
    """The text of the first of these fields that has a value."""
    return next((str(row[name]) for name in names if row.get(name) is not None), "")


def items_of(entity: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The objects in the list with this name."""
    found = entity.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def yes(value: object) -> str:
    """A truth value as ksqlDB shows it."""
    return "true" if value else "false"
