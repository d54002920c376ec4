"""What happens to a record that fails: it is tried again, set aside, or it ends its task.

Keeps true:  an error is tolerated only in the stages where it can be the record's own fault, and only with
             `errors.tolerance=all`. A tolerated record was handed to every reporter before the next record.
Source:      KIP-298; stages, texts and waits as in Kafka Connect's `RetryWithToleranceOperator`.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol, TypeVar

from felice.client.model import Message
from felice.dataclass import dataclass
from felice.pipelines.connect.model.errors import ConnectError, RetriableError
from felice.pipelines.connect.model.record import SourceRecord
from felice.pipelines.connect.task.control import Control
from felice.pipelines.errors import OutsideError

T = TypeVar("T")

_FIRST_WAIT_S = 0.3
"""The wait before the second try; it doubles with each try."""


class Stage(Enum):
    """Where a record was when it failed."""

    TASK_PUT = "TASK_PUT"
    TRANSFORMATION = "TRANSFORMATION"
    KEY_CONVERTER = "KEY_CONVERTER"
    VALUE_CONVERTER = "VALUE_CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"
    KAFKA_PRODUCE = "KAFKA_PRODUCE"


_OF_RECORDS = {Stage.TRANSFORMATION, Stage.KEY_CONVERTER, Stage.VALUE_CONVERTER, Stage.HEADER_CONVERTER}


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """The options `errors.*` of a connector. A `retry_timeout_ms` of -1 has no end, of 0 allows no second try."""

    tolerates_all: bool = False
    retry_timeout_ms: int = 0
    retry_delay_max_ms: int = 60_000
    log_enabled: bool = False
    log_includes_messages: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that failed: as it was read of a topic (`message`), or as a source made it (`source_record`)."""

    stage: Stage
    executing: str
    """The class that raised the error."""
    error: BaseException
    message: Message | None = None
    source_record: SourceRecord | None = None

    @property
    def place(self) -> str | None:
        """Where the record stands: in its topic, or in its source."""
        if self.message is not None:
            return f"{self.message.topic()}-{self.message.partition()}@{self.message.offset()}"
        if self.source_record is not None:
            return f"{dict(self.source_record.source_partition)}@{dict(self.source_record.source_offset)}"
        return None

    def __str__(self) -> str:
        return f"Error encountered in stage '{self.stage.value}' when executing class '{self.executing}'"


class Reporter(Protocol):
    """Told of records that failed."""

    def report(self, failure: Failure) -> None:
        """Keeps a failed record, so that a person finds it."""


class LogReporter:
    """Writes failed records to the log."""

    def __init__(self, log: logging.Logger, *, includes_messages: bool) -> None:
        self._log = log
        self._includes_messages = includes_messages

    def report(self, failure: Failure) -> None:
        """Logs the failure, with the record's place and times only if messages are included."""
        self._log.error("%s%s: %s", failure, self._place(failure), failure.error, exc_info=failure.error)

    def _place(self, failure: Failure) -> str:
        if not self._includes_messages:
            return ""
        if (message := failure.message) is not None:
            return (
                f", where consumed record is {{topic='{message.topic()}', partition={message.partition()}, "
                f"offset={message.offset()}, timestamp={message.timestamp()[1]}}}"
            )
        if (record := failure.source_record) is not None:
            return (
                f", where source record is {{topic='{record.topic}', place={dict(record.source_partition)}}}"
            )
        return ""


class Tolerated(Exception):
    """The record was set aside: the loop goes on with the next one."""


class Tolerance:
    """Runs the steps of a task by its error policy."""

    def __init__(self, policy: ErrorPolicy, reporters: list[Reporter], control: Control) -> None:
        self.policy = policy
        self._reporters = reporters
        self._control = control
        self.failures = 0
        """The records that were set aside."""
        self.last_failure: Failure | None = None

    def report_to(self, reporter: Reporter) -> None:
        """Tells another reporter of failed records, too."""
        self._reporters.append(reporter)

    def run(
        self, stage: Stage, executing: object, step: Callable[..., T], *arguments: Any, **about: Any
    ) -> T:
        """What `step` returns for these arguments. `about` has the record, as in `Failure`.

        Raises `Tolerated` for a record that was set aside, `ConnectError` if the task must fail, and
        `felice.pipelines.errors.OutsideError` for what is no fault of the record.
        """
        try:
            try:
                return step(*arguments)
            except RetriableError as error:
                return self._tried_again(error, step, *arguments)
        except OutsideError:
            raise
        except Exception as error:
            if stage not in _OF_RECORDS and not isinstance(error, RetriableError):
                raise
            self.set_aside(stage, executing, error, **about)
            raise Tolerated from error

    def set_aside(self, stage: Stage, executing: object, error: BaseException, **about: Any) -> None:
        """Hands a record to the reporters. `about` is as for `run`. Raises `ConnectError` if no error is tolerated."""
        failure = self.last_failure = Failure(stage, _name(executing), error, **about)
        for one in self._reporters:
            one.report(failure)
        if not self.policy.tolerates_all:
            raise ConnectError("Tolerance exceeded in error handler") from error
        self.failures += 1

    def _tried_again(self, error: RetriableError, step: Callable[..., T], *arguments: Any) -> T:
        began_s = self._control.now_s()
        wait_s = _FIRST_WAIT_S
        while self._may_try_again(began_s):
            limit_s = self.policy.retry_delay_max_ms / 1000
            self._control.wait_s(wait_s if wait_s <= limit_s else random.uniform(0, limit_s))
            if self._control.is_stopping:
                raise ConnectError("the task was stopped while it waited to try again") from error
            wait_s *= 2
            try:
                return step(*arguments)
            except RetriableError as another:
                error = another
        raise error

    def _may_try_again(self, began_s: float) -> bool:
        timeout_ms = self.policy.retry_timeout_ms
        return timeout_ms == -1 or (self._control.now_s() - began_s) * 1000 < timeout_ms


def _name(executing: object) -> str:
    kind = executing if isinstance(executing, type) else type(executing)
    return f"{kind.__module__}.{kind.__qualname__}"
