"""How results are shown: tables for people, JSON for scripts, progress bars for long work."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from felice.metadata.store import Node

Row = Mapping[str, object]


def show(rows: Sequence[Row], as_json: bool, *, empty: str = "") -> None:
    """Prints rows as a table, or as one JSON list. Prints `empty` if there is no row."""
    if as_json:
        show_json(list(rows))
    elif rows:
        show_table(rows)
    elif empty:
        click.echo(empty, err=True)


def show_json(value: object) -> None:
    """Prints a value as one line of JSON."""
    click.echo(as_json_text(value))


def as_json_text(value: object) -> str:
    """The value as JSON on one line."""
    return json.dumps(value, default=_jsonable)


def _jsonable(value: object) -> object:
    """Bytes as text if they are UTF-8, else as `{"base64": …}`, so that different bytes never look alike."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return str(value)


def node_row(path: str, node: Node) -> Row:
    """A node of the metadata store, as `felice import --znodes` reads it."""
    return {"path": path, "data": node.data, "version": node.version, "ephemeral": bool(node.ephemeral_owner)}


def show_table(rows: Sequence[Row]) -> None:
    """Prints rows as a table; the keys of the first row are the columns."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in rows[0]:
        numeric = all(isinstance(row[name], (int, float)) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    # In a pipe a row must stay one line, however long it is.
    width = None if sys.stdout.isatty() else 10_000
    console = Console(width=width, highlight=False)
    console.print(table)


def show_fields(row: Row) -> None:
    """Prints one row as lines of name and value: long values stay whole, so that they can be copied."""
    width = max(map(len, row))
    for name, value in row.items():
        click.echo(f"{name.replace('_', ' '):{width}}  {_text(value)}")


def _cell(value: object) -> str:
    from rich.markup import escape

    return escape(_text(value))


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value)
    return str(value)


def partition_lines(names: Iterable[str], most: int = 20) -> Iterator[str]:
    """One line for each topic, such as `orders  0-4, 7`, from partitions named `orders-0`. At most `most` topics."""
    topics: dict[str, list[int]] = {}
    for name in names:
        topic, _, number = name.rpartition("-")
        topics.setdefault(topic, []).append(int(number))
    shown = sorted(topics)[:most]
    width = max(map(len, shown), default=0)
    for topic in shown:
        yield f"  {topic:<{width}}  {_ranges(sorted(topics[topic]))}"
    if more := len(topics) - len(shown):
        yield f"  and those of {more} more topics; --json has them all"


def _ranges(numbers: Sequence[int]) -> str:
    """`0-4, 7` for 0, 1, 2, 3, 4 and 7."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def padded(columns: Sequence[str], rows: Iterable[Sequence[object]], widths: Sequence[int]) -> Iterator[str]:
    """Lines in the fixed columns of Kafka's tools."""
    for cells in (columns, *rows):
        yield " ".join(str(cell).ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


@contextmanager
def progress(title: str, total: int | None, *, quiet: bool = False) -> Iterator[Callable[[int], object]]:
    """A progress bar on standard error. Yields a function that advances it by a number of units."""
    if quiet or not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda count: bar.advance(task, count)
