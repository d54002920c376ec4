"""Plugins by their names: Kafka's classes, short forms, and connectors of other packages."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint

import pytest

from felice.pipelines.connect import plugins
from felice.pipelines.connect.connector.base import SinkConnector
from felice.pipelines.connect.model.errors import ConfigError
from felice.pipelines.connect.plugins import Kind, Plugin, Plugins
from felice.pipelines.connect.transforms.fields import InsertField
from peers.applications import running_connect_oracle

KAFKA = "org.apache.kafka.connect."


class Printer(SinkConnector):
    """A connector of another package."""

    version = "3"


@pytest.fixture
def found() -> Plugins:
    return Plugins([])


def test_kafkas_plugins_are_ours(found: Plugins) -> None:
    with running_connect_oracle() as oracle:
        theirs = oracle.ask({"plugins": True})["plugins"]
    assert {(one["type"], one["class"]) for one in theirs} == {
        (one.kind.text, one.name)
        for one in found
        if one.kind not in (Kind.SOURCE, Kind.SINK) and one.name.startswith("org.apache.kafka.")
    }


def test_every_plugin_can_be_loaded(found: Plugins) -> None:
    for one in found:
        name = re.sub(r".*\.|\$.*|Connector$", "", one.name)
        assert one.load().__name__ in (
            name,
            f"{name}Source",
        )  # Debezium's names do not say that they are sources


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("FileStreamSink", "file.FileStreamSinkConnector"),
        ("FileStreamSinkConnector", "file.FileStreamSinkConnector"),
        ("file-sink", "file.FileStreamSinkConnector"),
        ("Json", "json.JsonConverter"),
        ("Simple", "storage.SimpleHeaderConverter"),
        ("Filter", "transforms.Filter"),
        (KAFKA + "transforms.Cast$Key", "transforms.Cast$Key"),
    ],
)
def test_short_forms(found: Plugins, text: str, name: str) -> None:
    assert found.class_name("an.option", text) == KAFKA + name


@pytest.mark.parametrize("text", ["", "Nope", "Value", "Cast$Key", "$", "file"])
def test_what_names_no_plugin(found: Plugins, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"Class {text} could not be found")):
        found.class_name("an.option", text)


def test_a_form_of_two_plugins_means_neither() -> None:
    more = [Plugin(Kind.SINK, f"{package}.Printer", "x:Printer") for package in ("a", "b")]
    with pytest.raises(ConfigError, match="Class Printer could not be found"):
        Plugins(more).class_name("an.option", "Printer")


def test_a_transformation_has_the_part_of_its_name(found: Plugins) -> None:
    plugin = found.get(KAFKA + "transforms.InsertField$Key", Kind.TRANSFORMATION)
    assert (plugin.load(), plugin.part) == (InsertField, "key")


def test_a_connector_of_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("printer", f"{__name__}:Printer", plugins.ENTRY_POINTS)
    monkeypatch.setattr(EntryPoint, "load", lambda self: Printer)
    monkeypatch.setattr(
        plugins, "entry_points", lambda group: [point] if group == plugins.ENTRY_POINTS else []
    )
    every = Plugins()
    name = every.class_name("connector.class", "printer")
    assert name == f"{__name__}.Printer"
    assert every.get(name, Kind.SOURCE, Kind.SINK).kind is Kind.SINK


@pytest.mark.parametrize("value", ["nowhere.to_be_found:X", f"{__name__}:KAFKA"])
def test_a_broken_entry_point_is_named(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    point = EntryPoint("broken", value, plugins.ENTRY_POINTS)
    if value.endswith("KAFKA"):
        monkeypatch.setattr(EntryPoint, "load", lambda self: KAFKA)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point])
    with pytest.raises(ConfigError, match="broken"):
        Plugins()


@pytest.mark.parametrize(
    "plugin", Plugins([]).of(Kind.SOURCE, Kind.SINK), ids=lambda plugin: plugin.name.rpartition(".")[2]
)
def test_a_task_may_be_ended_before_it_has_started(plugin: Plugin) -> None:
    task = plugin.load().task_class()()
    task.stop()
    if plugin.kind is Kind.SOURCE:
        assert task.stopping.is_set()
        task.close()
