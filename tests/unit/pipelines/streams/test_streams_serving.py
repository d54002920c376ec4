"""Queries of state and metrics over HTTP."""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.streams.formats import FORMATS
from felice.pipelines.streams.on_spark.changes import of_program
from felice.pipelines.streams.on_spark.directory import Checkpoint, Description
from felice.pipelines.streams.on_spark.lock import RunLock
from felice.pipelines.streams.serving import queries as queries_module
from felice.pipelines.streams.serving.queries import Queries, Selection
from felice.pipelines.streams.serving.server import state_server
from felice.pipelines.streams.serving.texts import key_of, plain
from felice.pipelines.streams.views import StoreView
from felice.streams import App
from felice.web.login import Login
from felice.web.users import FileUsers, PasswordHash, write_users
from streams.tasks_in_memory import TasksInMemory

PLACES = 2


def shop() -> App:
    app = App("shop", value="string")
    orders = app.stream("orders")
    orders.group_by_key().count(name="counts")
    orders.group_by_key().tumbling(10, grace_ms=50).count(name="windows")
    orders.group_by_key().session(5, grace_ms=50).count(name="sessions")
    orders.left_join(app.stream("others"), lambda a, b: a, within=_within()).to("joined")
    return app


def _within() -> Any:
    from felice.streams import JoinWindows

    return JoinWindows(1, 1)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    app, found = shop(), Checkpoint(tmp_path)
    description = Description("shop", partitions=PLACES, starting={}, **of_program(app.topology))
    tasks = TasksInMemory(app, PLACES)
    tasks.run(
        [("orders", key, "x", 100 + number * 5) for number, key in enumerate(["a", "b", "ba", "c/d", "a"])]
    )
    tasks.save(found, description, 3)
    found.describe(description)
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "3").touch()
    return found


Get = Callable[[str], tuple[int, Any]]


def ask(checkpoint: Checkpoint, *paths: str) -> list[tuple[int, Any]]:
    """The status and the body of each answer."""

    def get(url: str) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                status, body = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            status, body = error.code, error.read().decode()
        return status, json.loads(body) if body.startswith("{") else body

    async def run() -> list[tuple[int, Any]]:
        async with state_server(Queries(shop(), checkpoint), "127.0.0.1", 0) as server:
            return [await asyncio.to_thread(get, server.url + path) for path in paths]

    return asyncio.run(run())


def keys(answer: tuple[int, Any]) -> list[Any]:
    status, body = answer
    assert status == 200, body
    return [row["key"] for row in body["rows"]]


def test_a_row_and_the_rows_of_a_range_or_a_prefix(checkpoint: Checkpoint) -> None:
    one, encoded, everything, some, with_prefix, missing = ask(
        checkpoint,
        "/stores/counts/a",
        "/stores/counts/c%2Fd",
        "/stores/counts",
        "/stores/counts?from=b&to=c",
        "/stores/counts?prefix=b",
        "/stores/counts/z",
    )
    row = {"key": "a", "value": 2, "timestamp": 120}
    assert one == (200, {"batch": 3, "rows": [row], "next": None})
    assert keys(encoded) == ["c/d"]
    assert keys(everything) == ["a", "b", "ba", "c/d"]
    assert keys(some) == ["b", "ba"]
    assert keys(with_prefix) == ["b", "ba"]
    assert missing[0] == 404 and missing[1]["message"] == "store 'counts' has no row with the key 'z'"


def test_windows_and_sessions_by_key_and_time(checkpoint: Checkpoint) -> None:
    of_a, by_time, of_a_by_time, sessions = ask(
        checkpoint,
        "/stores/windows/a",
        "/stores/windows?from_ms=110",
        "/stores/windows/a?to_ms=105",
        "/stores/sessions/a",
    )
    assert [(row["window"]["start"], row["window"]["end"], row["value"]) for row in of_a[1]["rows"]] == [
        (100, 110, 1),
        (120, 130, 1),
    ]
    assert [(row["key"], row["window"]["start"]) for row in by_time[1]["rows"]] == [
        ("a", 120),
        ("ba", 110),
        ("c/d", 110),
    ]
    assert [row["window"]["start"] for row in of_a_by_time[1]["rows"]] == [100]
    assert [(row["key"], row["window"]["start"]) for row in sessions[1]["rows"]] == [("a", 100), ("a", 120)]


def test_long_answers_come_in_pages(checkpoint: Checkpoint) -> None:
    first = ask(checkpoint, "/stores/counts?limit=3")[0]
    assert keys(first) == ["a", "b", "ba"]
    rest = ask(checkpoint, f"/stores/counts?limit=3&after={first[1]['next']}")[0]
    assert keys(rest) == ["c/d"] and rest[1]["next"] is None


def test_numbers_are_in_a_range_by_their_values(tmp_path: Path) -> None:
    app = App("keys", key="long", value="string")
    app.table("numbers", name="numbers")
    queries = Queries(app, Checkpoint(tmp_path))
    [part] = app.topology.parts()
    stores = app.topology.made_stores(part)
    for key in (-3, 0, 2, 10):
        stores["numbers"].put(key, "x")
    queries._view = lambda name: StoreView(name, [stores[name]])  # type: ignore[method-assign]

    def found(**wanted: Any) -> list[int]:
        return [row["key"] for row in queries.select("numbers", Selection(**wanted)).rows]

    assert sorted(found(first="-3", last="2")) == [-3, 0, 2] and found(first="3") == [10]
    assert found(key="-3") == [-3]
    assert queries.select("numbers", Selection(limit=4)).next is None
    queries.close()


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/stores/none", 404, "shop has no store 'none'; it has counts, sessions, windows"),
        ("/stores/counts?form=a", 400, "there is no parameter 'form'"),
        ("/stores/counts?limit=x", 400, "limit is 'x'; it must be a whole number"),
        ("/stores/counts?limit=0", 400, "limit is 0"),
        ("/stores/windows/a?from_ms=9000", 404, "in these times"),
        ("/stores/counts?after=x", 400, "after must be the value of next"),
        ("/stores/counts?from_ms=1", 400, "has no windows"),
        ("/other", 404, "Not Found"),
    ],
)
def test_a_wrong_question_gets_one_line(checkpoint: Checkpoint, path: str, status: int, told: str) -> None:
    [answer] = ask(checkpoint, path)
    assert answer[0] == status and told in answer[1]["message"]


def test_what_is_there_and_whether_it_runs(checkpoint: Checkpoint) -> None:
    stores, about, health = ask(checkpoint, "/stores", "/", "/health")
    assert [one["name"] for one in stores[1]["stores"]] == ["counts", "sessions", "windows"]
    told = {"application": "shop", "running": False, "last_batch": 3, "partitions": PLACES, "failure": None}
    assert about[1] == told
    assert health[0] == 503
    with RunLock(checkpoint, "shop"):
        assert ask(checkpoint, "/health") == [(200, {"running": True})]


def test_the_state_of_another_version_is_not_answered(checkpoint: Checkpoint) -> None:
    (checkpoint.directory / "application.json").write_text("{")
    assert ask(checkpoint, "/stores/counts")[0][0] == 503


def test_metrics_name_operators_and_tasks(checkpoint: Checkpoint) -> None:
    report = {"batch": 3, "rows": 5, "batch_ms": 250, "rows_per_s": 20, "behind": 7, "read": 50, "skipped": 1}
    report |= {"dropped": {"late windows": 2, 'null say "x"': 1}, "reported_at": 1_700_000_000_000}
    checkpoint.report(report)
    status, page = ask(checkpoint, "/metrics")[0]
    assert status == 200
    lines = page.splitlines()
    for line in (
        'felice_streams_running{application="shop"} 0',
        'felice_streams_last_batch{application="shop"} 3',
        'felice_streams_batch_seconds{application="shop"} 0.25',
        'felice_streams_lag_records{application="shop"} 7',
        'felice_streams_records_total{application="shop"} 50',
        'felice_streams_dropped_records_total{application="shop",operator="windows",reason="late"} 2',
        'felice_streams_dropped_records_total{application="shop",operator="say \\"x\\"",reason="null"} 1',
    ):
        assert line in lines
    rows = [
        line
        for line in lines
        if line.startswith('felice_streams_state_rows{application="shop",sub_topology="0"')
    ]
    assert len(rows) == PLACES
    types = [line for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types))


def test_keys_and_values_as_text() -> None:
    one = uuid.UUID(int=5)
    for name, text, key in (
        ("string", "5", "5"),
        ("long", "5", 5),
        ("double", "0.5", 0.5),
        ("boolean", "true", True),
        ("uuid", str(one), one),
        ("bytes", base64.b64encode(b"\xff").decode(), b"\xff"),
        ("json", "5", 5),
        ("json", "plain", "plain"),
        ("json", '"5"', "5"),
    ):
        assert key_of(text, FORMATS[name]) == key
    wrong = (("long", "x"), ("long", "1_0"), ("double", "x"), ("double", "nan"), ("boolean", "yes"))
    for name, text in (*wrong, ("uuid", "5"), ("bytes", "?")):
        with pytest.raises(ValueError, match=f"is no key of format {name}"):
            key_of(text, FORMATS[name])
    assert plain({"a": [b"\xff", one, 1]}) == {"a": ["/w==", str(one), 1]}
    assert plain(float("nan")) == "nan"


def test_texts_in_json_have_prefixes_and_long_answers_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("keys", key="json", value="string")
    app.table("texts", name="texts")
    queries = Queries(app, Checkpoint(tmp_path))
    stores = app.topology.made_stores(app.topology.parts()[0])
    for key in ("ab", "abc", "b"):
        stores["texts"].put(key, "x")
    queries._view = lambda name: StoreView(name, [stores[name]])  # type: ignore[method-assign]
    found = queries.select("texts", Selection(prefix="ab"))
    assert [row["key"] for row in found.rows] == ["ab", "abc"]
    monkeypatch.setattr(queries_module, "MOST_ROWS", 2)
    found = queries.select("texts", Selection(limit=100))
    assert len(found.rows) == 2 and found.next is not None
    monkeypatch.setattr(queries_module, "MOST_BYTES", 60)
    found = queries.select("texts", Selection(limit=2))
    assert len(found.rows) == 2, "the row that exceeds the limit is the last one"
    monkeypatch.setattr(queries_module, "MOST_BYTES", 10)
    found = queries.select("texts", Selection(limit=2))
    assert [row["key"] for row in found.rows] == ["ab"] and found.next is not None
    rest = queries.select("texts", Selection(after=bytes.fromhex(found.next)))
    assert rest.rows[0]["key"] == "abc"
    queries.close()
    with pytest.raises(RuntimeError):
        asyncio.run(queries.run(list))


def test_with_users_every_path_asks_for_a_log_in(checkpoint: Checkpoint, tmp_path: Path) -> None:
    file = tmp_path / "users"
    write_users(file, {"ann": PasswordHash.of("secret")})

    def status(url: str) -> int:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    async def run() -> list[int]:
        login = Login(FileUsers(file))
        async with state_server(Queries(shop(), checkpoint), "127.0.0.1", 0, login=login) as server:
            return [await asyncio.to_thread(status, server.url + path) for path in ("/stores", "/metrics")]

    assert asyncio.run(run()) == [401, 401]


def test_a_failure_is_told_until_the_application_runs_again(checkpoint: Checkpoint) -> None:
    checkpoint.report({"failure": "KeyError"})
    assert 'felice_streams_failed{application="shop"} 1' in ask(checkpoint, "/metrics")[0][1]
    with RunLock(checkpoint, "shop"):
        assert 'felice_streams_failed{application="shop"} 0' in ask(checkpoint, "/metrics")[0][1]


def test_a_damaged_file_hides_the_size_of_its_task_only(checkpoint: Checkpoint) -> None:
    path = Path(checkpoint.task_location(checkpoint.description(), 0, 0))  # type: ignore[arg-type]
    (path / "3.delta").write_bytes(b"short")
    status, page = ask(checkpoint, "/metrics")[0]
    assert status == 200 and 'partition="1"' in page and 'partition="0"' not in page
