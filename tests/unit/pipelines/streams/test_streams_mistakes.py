"""Mistakes of an application's author: each is refused where it is made, in one line that says what is needed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from felice.cli.application_file import apps_in
from felice.cli.faults import Fault
from felice.streams import App, DeadLetters, JoinWindows, Stream, Table, TestDriver, cogroup


def stream(name: str = "shop") -> Any:
    return App(name, value="string").stream("in")


def table(name: str = "shop") -> Any:
    return App(name, value="string").table("rows")


def joiner(one: Any, other: Any) -> Any:
    return one


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "a partition": (lambda: stream().to("out", partition=7), "partition is 7; it must be a function"),
    "partitions": (lambda: stream().repartition(partition=7), "partition is 7; it must be a function"),
    "a mapping": (lambda: stream().map_values(7), "7 is given where a function of key and value is needed"),
    "no predicate": (
        lambda: stream().filter(None),
        "None is given where a function of key and value is needed",
    ),
    "a key": (lambda: stream().key_by(7), "7 is given where the name of a field, or a function"),
    "a time": (lambda: App("shop").stream("in", ts=7), "7 is given where the name of a field, or a function"),  # type: ignore[arg-type]
    "a reducer": (lambda: stream().group_by_key().reduce(1), "1 is given where a reducer of two values"),
    "an initializer": (
        lambda: stream().group_by_key().aggregate(0, joiner),
        "0 is given where an initializer",
    ),
    "a joiner": (lambda: table().join(table(), None), "None is given where a joiner of two values is needed"),
    "a processor": (
        lambda: stream().process(7),
        "7 is given where a function or class that makes a processor",
    ),
    "a text as time": (
        lambda: stream().group_by_key().tumbling("10"),
        "size is '10'; it must be a whole number",
    ),
    "a timedelta": (
        lambda: stream().dedupe(within_ms=timedelta(1)),
        r"within is datetime.timedelta\(days=1\)",
    ),
    "a negative age": (lambda: table().suppress(-1), "max_age is -1 ms, but must be at least 0"),
    "no keys": (lambda: table().suppress(1, max_keys=0), "max_keys is 0, but must be at least 1"),
    "late": (
        lambda: stream().group_by_key().tumbling(10, on_late="skip").count(),
        "on_late is 'skip'; it must be a function of key, value and timestamp, or DeadLetters",
    ),
    "an App": (lambda: App(""), "'' is given where the name of an App is needed"),
    "an input": (lambda: App("shop").stream(["a", "b c"]), "'b c' cannot be the name of a topic"),
    "an output": (lambda: stream().to(""), "'' cannot be the name of a topic"),
    "letters": (lambda: DeadLetters(".."), "'..' cannot be the name of a topic of dead letters"),
    "a store": (lambda: stream().group_by_key().count(name="a/b"), "'a/b' cannot be the name of a store"),
    "a side output": (lambda: App("shop").side_output("a b"), "'a b' cannot be the name of a topic"),
    "two Apps": (
        lambda: stream().join(table("other"), joiner),
        r"\(test_streams_mistakes.py:\d+\) belongs to another App; Streams and Tables of one App go together",
    ),
    "a global table of another App": (
        lambda: stream().join(App("other").global_table("all"), joiner),
        "belongs to another App",
    ),
    "Streams of two Apps": (lambda: stream().merge(stream("other")), "belongs to another App"),
    "a merged table": (lambda: stream().merge(table()), "merge: a stream is merged with a Stream, not with"),
    "a joined text": (
        lambda: stream().join("rows", joiner),
        "is joined with a Stream or a table, not with 'rows'",
    ),
    "a joined stream": (lambda: table().join(stream(), joiner), "a table is joined with a Table, not with"),
    "branches": (
        lambda: stream().branch(["a"]),
        r"branch: \['a'\] is given where a dict of predicates is needed",
    ),
    "no group": (lambda: cogroup([], dict), "cogroup: there is no grouped stream in the list"),
    "no partition": (lambda: TestDriver(App("shop"), 0), "has 0 partitions, but must have at least 1"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_in_one_line(mistake: str) -> None:
    make, expected = MISTAKES[mistake]
    with pytest.raises(ValueError, match=expected) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", ["0", "'10'", "None"])
def test_the_command_names_the_line_of_a_mistake(tmp_path: Path, size: str) -> None:
    file = tmp_path / "shop.py"
    file.write_text(
        "from felice.streams import App\n"
        "app = App('shop', value='string')\n"
        f"app.stream('in').group_by_key().tumbling({size}).count().to('out')\n"
    )
    with pytest.raises(Fault, match=r"shop.py, line 3: size is .*; it must be|shop.py, line 3: size is 0 ms"):
        apps_in(file)


def test_an_error_of_the_program_itself_keeps_its_traceback(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text("from felice.streams import App\napp = App('shop')\nint('x')\n")
    with pytest.raises(ValueError, match="invalid literal"):
        apps_in(file)


def test_streams_and_tables_of_one_app_go_together() -> None:
    app = App("shop", value="string")
    joined = app.stream("in").join(app.table("rows"), joiner)
    both = joined.merge(app.stream("more")).join(app.stream("other"), joiner, within=JoinWindows(1, 1))
    assert isinstance(both, Stream) and isinstance(both.to_table(), Table)
