"""What a notebook shows of Streams and Tables."""

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import Any

import pytest

from felice.pipelines.streams.html import bars, lines, table
from felice.pipelines.streams.record import Record
from felice.streams import App, mins
from felice.testing import Broker


def test_without_brokers_the_node_and_the_way_to_its_records_are_shown() -> None:
    html = App("shop").stream("sales")._repr_html_()
    assert "source-0 of shop" in html
    assert "app.preview" in html


def test_a_stream_shows_its_newest_records_and_those_that_come_later() -> None:
    app = App("shop")
    sales = app.stream("sales").map_values(lambda key, sale: sale | {"price": 2 * sale["qty"]})
    before = app.describe()
    with Broker(topics={"sales": 2}) as broker:
        app.preview(broker.bootstrap, records=2)
        assert "no records yet in sales" in sales._repr_html_()
        for number in range(5):
            broker.produce("sales", json.dumps({"qty": number}).encode(), key=b"<k>", partition=0)
        html = sales._repr_html_()
        assert "<th>qty</th><th>price</th>" in html
        assert "<td>&lt;k&gt;</td><td>4</td><td>8</td>" in html
        broker.produce("sales", b'{"qty": 50}', key=b"k", partition=1)
        later = sales._repr_html_()
        assert later.index("<td>100</td>") < later.index("<td>8</td>")
        assert app.describe() == before


def test_a_first_look_takes_only_the_newest_records() -> None:
    app = App("shop")
    sales = app.stream("sales")
    with Broker(topics=["sales"]) as broker:
        for number in range(5):
            broker.produce("sales", b"%d" % number)
        app.preview(broker.bootstrap, records=2)
        html = sales._repr_html_()
    assert "<td>4</td>" in html and "<td>3</td>" in html
    assert "<td>2</td>" not in html


def test_a_table_of_numbers_shows_its_rows_and_a_chart() -> None:
    app = App("shop")
    sold = (
        app.stream("sales").group_by("item").aggregate(lambda: 0, lambda item, sale, sum: sum + sale["qty"])
    )
    with Broker(topics=["sales"]) as broker:
        for item, qty in (("pen", 3), ("ink", 2), ("pen", 4)):
            broker.produce("sales", json.dumps({"item": item, "qty": qty}).encode())
        app.preview(broker.bootstrap)
        html = sold._repr_html_()
    assert "<td>pen</td><td>7</td>" in html
    assert "<td>3</td>" not in html
    assert "<svg" in html and ">pen</text>" in html


def test_a_row_that_is_deleted_is_not_shown() -> None:
    app = App("users")
    users = app.table("users")
    with Broker(topics=["users"]) as broker:
        for key, value in ((b"ann", b'"x"'), (b"bob", b'"y"'), (b"ann", None)):
            broker.produce("users", value, key=key)
        app.preview(broker.bootstrap)
        html = users._repr_html_()
    assert "bob" in html and "ann" not in html
    assert "<svg" not in html


def test_a_windowed_table_is_drawn_over_time() -> None:
    app = App("visits")
    visits = app.stream("clicks", ts="at").group_by("page").tumbling(mins(1)).count()
    with Broker(topics=["clicks"]) as broker:
        for minute in (0, 0, 1, 3):
            broker.produce("clicks", json.dumps({"page": "/", "at": mins(minute)}).encode())
        app.preview(broker.bootstrap)
        html = visits._repr_html_()
    assert "/ from 1970-01-01 00:01:00.000 to 1970-01-01 00:02:00.000" in html
    assert html.count("<polyline") == 1


def test_an_error_is_shown_with_its_reason() -> None:
    app = App("shop")
    sales = app.stream("sales")
    with Broker(topics=["sales"]) as broker:
        broker.produce("sales", b"no JSON")
        app.preview(broker.bootstrap)
        for _ in range(2):
            assert "StreamsError: a record of topic" in sales._repr_html_()


def test_a_topology_that_grew_is_shown_with_its_new_part() -> None:
    app = App("shop")
    sales = app.stream("sales")
    with Broker(topics=["sales"]) as broker:
        broker.produce("sales", b"3")
        app.preview(broker.bootstrap)
        sales._repr_html_()
        assert "<td>6</td>" in sales.map_values(lambda key, qty: 2 * qty)._repr_html_()


def test_live_shows_the_same_place_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []

    class Handle:
        def update(self, view: object) -> None:
            shown.append(view)

    def display(view: object, display_id: bool) -> Any:
        assert display_id
        return Handle()

    module = ModuleType("IPython.display")
    module.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    sales = App("shop").stream("sales")
    sales.live(for_s=0.05, every_s=0.01)
    assert shown and all(view is sales for view in shown)


def test_values_that_are_not_dicts_have_one_column() -> None:
    html = table([Record("k", 1, 0), Record("k", {"a": 1}, 0)])
    assert "<th>time</th><th>key</th><th>value</th>" in html


def test_charts_bear_zero_and_one_point() -> None:
    assert bars([("a", 0)]).count("<rect") == 1
    assert lines([("a", 5, 0)]).count("<polyline") == 1
