"""The parts of a task are made from options of its connector and its worker."""

from __future__ import annotations

import logging

import pytest

from felice.pipelines.connect.model.errors import ConfigError, ConnectError
from felice.pipelines.connect.model.record import Header, SourceRecord
from felice.pipelines.connect.model.schema import INT32, STRING, Schema
from felice.pipelines.connect.plugins import Plugins
from felice.pipelines.connect.task.assembly import Parts
from felice.pipelines.connect.task.control import Control
from felice.pipelines.connect.task.conversion import Produced
from felice.pipelines.connect.task.tolerance import Tolerated

KAFKA = "org.apache.kafka.connect."
WORKER = {
    "key.converter": KAFKA + "storage.StringConverter",
    "value.converter": KAFKA + "json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "header.converter": KAFKA + "storage.SimpleHeaderConverter",
}
SOURCE = {"name": "lines", "connector.class": "FileStreamSource", "topic": "t"}
RECORD = SourceRecord("t", None, Schema(STRING), "k", None, {"a": 1}, source_partition={}, source_offset={})


def parts(config: dict[str, str] | None = None, worker: dict[str, str] | None = None) -> Parts:
    return Parts(Plugins([]), WORKER if worker is None else worker, SOURCE | (config or {}))


def produced(given: Parts, record: SourceRecord = RECORD) -> Produced | None:
    return given.conversion(given.tolerance(Control())).of_source(record)


def test_converters_are_the_workers_with_its_options() -> None:
    assert produced(parts()) == Produced("t", None, b"k", b'{"a":1}', None, ())


def test_a_connectors_converter_has_only_the_connectors_options() -> None:
    made = produced(parts({"value.converter": "JsonConverter"}))
    assert made is not None
    assert made.value == b'{"schema":null,"payload":{"a":1}}'


def test_a_converter_may_convert_headers() -> None:
    record = SourceRecord(
        "t",
        None,
        None,
        None,
        None,
        None,
        None,
        (Header("n", Schema(INT32), 7),),
        source_partition={},
        source_offset={},
    )
    simple, binary = (
        produced(parts(), record),
        produced(parts({"header.converter": "IntegerConverter"}), record),
    )
    assert simple is not None and binary is not None
    assert (simple.headers, binary.headers) == ((("n", b"7"),), (("n", b"\0\0\0\x07"),))


def test_transformations_run_in_order_and_by_their_predicates() -> None:
    config = {
        "transforms": "hoist,rename,never",
        "transforms.hoist.type": KAFKA + "transforms.HoistField$Key",
        "transforms.hoist.field": "id",
        "transforms.rename.type": "RegexRouter",
        "transforms.rename.regex": "(.*)",
        "transforms.rename.replacement": "x-$1",
        "transforms.rename.predicate": "is-t",
        "transforms.never.type": "Filter",
        "transforms.never.predicate": "is-x",
        "transforms.never.negate": "true",
        "predicates": "is-t,is-x",
        "predicates.is-t.type": "TopicNameMatches",
        "predicates.is-t.pattern": "t",
        "predicates.is-x.type": "TopicNameMatches",
        "predicates.is-x.pattern": "x-.*",
    }
    made = produced(parts(config))
    assert made is not None
    assert (made.topic, made.key) == ("x-t", b"Struct{id=k}")
    assert produced(parts(config | {"transforms.rename.predicate": "is-x"})) is None


def test_a_predicate_that_is_not_defined_is_refused() -> None:
    config = {"transforms": "f", "transforms.f.type": "Filter", "transforms.f.predicate": "p"}
    with pytest.raises(
        ConfigError, match=r"transforms.f.predicate names 'p', which is not in predicates: empty"
    ):
        produced(parts(config))


def test_a_converter_must_be_set_somewhere() -> None:
    with pytest.raises(ConfigError, match=r"key.converter is set neither"):
        produced(parts(worker={"header.converter": WORKER["header.converter"]}))


def test_errors_are_handled_as_the_connector_says(caplog: pytest.LogCaptureFixture) -> None:
    bad = {"key.converter": "IntegerConverter"}
    with pytest.raises(ConnectError, match="Tolerance exceeded"):
        produced(parts(bad))
    assert not caplog.records
    tolerant = parts(bad | {"errors.tolerance": "all", "errors.log.enable": "true"})
    with caplog.at_level(logging.ERROR, "felice.connect.task"), pytest.raises(Tolerated):
        produced(tolerant)
    assert "KEY_CONVERTER" in caplog.text


def test_groups_of_topics_end_with_the_default() -> None:
    prefix = "topic.creation."
    config = {
        prefix + "groups": "logs",
        prefix + "default.partitions": "3",
        prefix + "default.replication.factor": "1",
        prefix + "logs.include": "log-.*",
        prefix + "logs.exclude": "log-x",
        prefix + "logs.cleanup.policy": "compact",
    }
    assert parts().topic_groups() == []
    logs, default = parts(config).topic_groups()
    assert (logs.name, logs.partitions, logs.replication_factor) == ("logs", -1, -1)
    assert (logs.matches("log-a"), logs.matches("log-x"), logs.matches("t")) == (True, False, False)
    assert logs.configs == {"cleanup.policy": "compact"}
    assert (default.name, default.partitions, default.replication_factor) == ("default", 3, 1)
