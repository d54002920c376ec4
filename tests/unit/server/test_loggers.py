"""Levels of loggers while the broker runs, slow requests, and repeated lines."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.wire import Wire
from felice.config import BrokerConfig
from felice.controller.config_changes import ChangeKind, ConfigChange
from felice.protocol.api import API
from felice.protocol.connection import Request
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages import alter_configs, incremental_alter_configs
from felice.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from felice.protocol.messages.metadata import MetadataRequest
from felice.security.principal import ANONYMOUS
from felice.server.configs import loggers
from felice.server.configs.loggers import change_levels, levels
from felice.server.flow.client_lines import MAX_LINES_PER_MINUTE
from felice.server.flow.request_log import RequestLog
from felice.server.process.embedded import EmbeddedBroker
from felice.server.process.logs import MAX_REPEATS, configure_logs

SET, DELETE, APPEND = ChangeKind.SET, ChangeKind.DELETE, ChangeKind.APPEND
LOGGER, ID = 8, "0"


@pytest.fixture(autouse=True)
def stream() -> Iterator[io.StringIO]:
    """Felice's log at level INFO, and everything as before at the end."""
    known = [logging.getLogger(name) for name in ("felice", *loggers.LOGGERS)]
    before = [(logger, logger.level, logger.handlers, logger.propagate) for logger in known]
    written = io.StringIO()
    configure_logs(stream=written)
    yield written
    for logger, level, handlers, propagate in before:
        logger.setLevel(level)
        logger.handlers, logger.propagate = handlers, propagate


def change(name: str, value: str | None, kind: int = SET) -> None:
    change_levels([ConfigChange(name, kind, value)], validate_only=False)


def test_a_logger_inherits_until_it_has_a_level_of_its_own() -> None:
    assert set(levels().values()) == {"INFO"}
    change("felice.log", "debug")
    change("root", "ERROR")
    found = levels()
    assert found.pop("felice.log") == "DEBUG"
    assert set(found.values()) == {"ERROR"}
    change("felice.log", None, DELETE)
    assert set(levels().values()) == {"ERROR"}


def test_loggers_with_kafkas_names_inherit_too() -> None:
    change("kafka.request.logger", "TRACE")
    change("root", "WARN")
    assert (levels()["kafka.request.logger"], levels()["kafka.authorizer.logger"]) == ("TRACE", "WARN")
    change("kafka.request.logger", None, DELETE)
    assert levels()["kafka.request.logger"] == "WARN"


def test_lines_appear_and_vanish_at_once(stream: io.StringIO) -> None:
    log = logging.getLogger("felice.log")
    log.debug("before")
    change("felice.log", "DEBUG")
    log.debug("between")
    change("felice.log", "WARN")
    log.info("after")
    assert [line for line in ("before", "between", "after") if line in stream.getvalue()] == ["between"]


@pytest.mark.parametrize(
    ("name", "value", "kind", "code"),
    [
        ("no.such", "INFO", SET, ErrorCode.INVALID_CONFIG),
        ("felice.log", "NOPE", SET, ErrorCode.INVALID_CONFIG),
        ("felice.log", None, SET, ErrorCode.INVALID_REQUEST),
        ("felice.log", "INFO", APPEND, ErrorCode.INVALID_REQUEST),
        ("felice.log", "INFO", 9, ErrorCode.INVALID_REQUEST),
        ("root", None, DELETE, ErrorCode.INVALID_REQUEST),
    ],
)
def test_wrong_changes_are_refused_and_change_nothing(
    name: str, value: str | None, kind: int, code: ErrorCode
) -> None:
    wrong, right = ConfigChange(name, kind, value), ConfigChange("felice.server", SET, "DEBUG")
    with pytest.raises(ApiError) as error:
        change_levels([right, wrong], validate_only=False)
    assert error.value.code == code
    assert set(levels().values()) == {"INFO"}


def test_clients_describe_and_change_levels(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker, Wire(broker.bootstrap) as wire:

        def described(name: str = ID) -> Any:
            resource = DescribeConfigsResource(
                resource_type=LOGGER, resource_name=name, configuration_keys=None
            )
            return wire.ask(DescribeConfigsRequest(resources=[resource])).results[0]

        def altered(value: str, *, name: str = ID, validate_only: bool = False) -> int:
            config = incremental_alter_configs.AlterableConfig(
                name="felice.server", config_operation=SET, value=value
            )
            resource = incremental_alter_configs.AlterConfigsResource(
                resource_type=LOGGER, resource_name=name, configs=[config]
            )
            asked = incremental_alter_configs.IncrementalAlterConfigsRequest(
                resources=[resource], validate_only=validate_only
            )
            return int(wire.ask(asked).responses[0].error_code)

        before = {row.name: row.value for row in described().configs}
        assert before.keys() == set(loggers.LOGGERS)
        assert altered("DEBUG", validate_only=True) == 0
        assert {row.name: row.value for row in described().configs} == before
        assert altered("DEBUG") == 0
        row = next(row for row in described().configs if row.name == "felice.server")
        assert (row.value, row.config_source, row.read_only, row.is_sensitive) == ("DEBUG", 6, False, False)
        for other in ("", "7"):
            assert described(other).error_code == altered("INFO", name=other) == ErrorCode.INVALID_REQUEST
        old = alter_configs.AlterConfigsResource(
            resource_type=LOGGER,
            resource_name=ID,
            configs=[alter_configs.AlterableConfig(name="felice.server", value="INFO")],
        )
        refused = wire.ask(alter_configs.AlterConfigsRequest(resources=[old]))
        assert refused.responses[0].error_code == ErrorCode.INVALID_REQUEST


def request(api: Any = API.METADATA) -> Request:
    return Request(api, 9, 7, "app", None, 100)


CONNECTION: Any = SimpleNamespace(
    peer="10.0.0.1",
    address="10.0.0.1:5",
    client_software="rdkafka 2",
    client_id="app",
    principal=ANONYMOUS,
    listener_name="PLAINTEXT",
)


def request_log(slow_ms: int, monotonic: Callable[[], float] = lambda: 0.0) -> RequestLog:
    return RequestLog(BrokerConfig(felice_slow_request_ms=slow_ms), monotonic)


def test_a_slow_request_is_logged_with_the_parts_of_its_time(stream: io.StringIO) -> None:
    log = request_log(100)
    assert log.threshold_s == 0.1
    log.note(CONNECTION, request(), (0.05, 0.02, 0.03, 0.0))
    line = stream.getvalue()
    assert "WARNING kafka.request.logger: slow request requestApiKeyName=Metadata" in line
    assert "totalTimeMs=100.0 requestQueueTimeMs=50.0 localTimeMs=20.0 remoteTimeMs=30.0" in line
    assert "connection=10.0.0.1:5" in line
    assert "principal=User:ANONYMOUS" in line


def test_waiting_for_records_does_not_make_a_request_slow(stream: io.StringIO) -> None:
    log = request_log(100)
    log.note(CONNECTION, request(API.FETCH), (0.0, 0.01, 10.0, 0.0))
    assert stream.getvalue() == ""
    log.note(CONNECTION, request(API.FETCH), (0.1, 0.01, 10.0, 0.0))
    assert "requestApiKeyName=Fetch" in stream.getvalue()


def test_a_client_gets_one_line_a_minute_for_its_slow_requests(stream: io.StringIO) -> None:
    now_s = 1000.0
    log = request_log(100, lambda: now_s)
    other = SimpleNamespace(**{**vars(CONNECTION), "client_software": ""})
    for _ in range(8):
        log.note(CONNECTION, request(), (0.2, 0.0, 0.0, 0.0))
        log.note(other, request(), (0.2, 0.0, 0.0, 0.0))
    assert stream.getvalue().count("slow request") == 2
    now_s += 60.0
    log.note(CONNECTION, request(), (0.2, 0.0, 0.0, 0.0))
    *_, line = stream.getvalue().splitlines()
    assert line.endswith("left_out=7")


def test_slow_requests_of_many_names_do_not_fill_the_log(stream: io.StringIO) -> None:
    log = request_log(100)
    for number in range(2 * MAX_LINES_PER_MINUTE):
        client = SimpleNamespace(**{**vars(CONNECTION), "client_software": str(number)})
        log.note(client, request(), (0.2, 0.0, 0.0, 0.0))
    assert stream.getvalue().count("slow request") == MAX_LINES_PER_MINUTE


def test_every_request_is_logged_at_level_debug(stream: io.StringIO) -> None:
    log = request_log(-1)
    assert log.threshold_s == float("inf")
    change("kafka.request.logger", "DEBUG")
    log.follow(BrokerConfig(felice_slow_request_ms=-1))
    assert log.threshold_s == 0.0
    for _ in range(3):
        log.note(CONNECTION, request(), (0.0, 0.0, 0.0, 0.0))
    assert stream.getvalue().count("DEBUG kafka.request.logger: request requestApiKeyName=Metadata") == 3


def test_a_running_broker_logs_its_requests(tmp_path: Path, stream: io.StringIO) -> None:
    with (
        EmbeddedBroker(tmp_path, properties={"felice.slow.request.ms": "0"}) as broker,
        Wire(broker.bootstrap) as wire,
    ):
        wire.ask(MetadataRequest(topics=[]), 9)
        # The line is written before the next request is handled.
        wire.ask(MetadataRequest(topics=[]), 9)
    assert "slow request requestApiKeyName=Metadata requestApiVersion=9" in stream.getvalue()


def test_repeated_lines_are_left_out_and_counted(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    make = logging.LogRecord

    def record(*arguments: Any, **facts: Any) -> logging.LogRecord:
        made = make(*arguments, **facts)
        made.created = now_s
        return made

    monkeypatch.setattr(logging, "_logRecordFactory", record)
    log = logging.getLogger("felice.server")
    for number in range(MAX_REPEATS + 7):
        log.warning("the same", extra={"number": number})
    log.warning("another")
    assert stream.getvalue().count("the same") == MAX_REPEATS
    assert "another" in stream.getvalue()
    now_s += 61.0
    log.warning("the same")
    assert stream.getvalue().splitlines()[-1].endswith("the same left_out=7")
