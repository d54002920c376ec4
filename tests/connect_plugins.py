"""Connectors that misbehave or tell what they see, for tests of workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import ClassVar

from felice.pipelines.connect.configuration.definitions import ConfigDefinitions, Definition, Type
from felice.pipelines.connect.connector.base import SourceConnector, SourceTask
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.record import SourceRecord
from felice.pipelines.connect.model.schema import STRING, Schema
from felice.pipelines.connect.plugins import Kind, Plugin


class Odd(SourceConnector):
    """Does what its option `does` says."""

    version: ClassVar = "7"
    definitions: ClassVar = ConfigDefinitions(
        [
            Definition("does", Type.STRING, ""),
            Definition("password", Type.PASSWORD, None),
            Definition("topic", Type.STRING, "odd"),
        ]
    )
    released: ClassVar[threading.Event] = threading.Event()
    """Ends what hangs."""

    @classmethod
    def task_class(cls) -> type[SourceTask]:
        return OddTask

    def start(self, config: Mapping[str, str]) -> None:
        super().start(config)
        self.count = 1
        does = config.get("does")
        if does == "hang at start":
            self.released.wait()
        elif does == "fail at start":
            raise ConnectError(f"the password {config['password']} is wrong")
        elif does == "fail later":
            self.context.fail(ConnectError("the source is gone"))
        elif does == "more tasks":
            threading.Thread(target=self._grow, daemon=True).start()

    def _grow(self) -> None:
        time.sleep(0.2)
        self.count = 2
        self.context.request_task_reconfiguration()

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        does = self.config.get("does")
        if does == "too many tasks":
            return [self.config] * (max_tasks + 1)
        if does == "hang at tasks":
            self.released.wait()
        if does == "offset":
            found = self.context.offset({"a": 1})
            return [{**self.config, "offset": str(found)}]
        return [{**self.config, "number": str(number)} for number in range(self.count)]

    def stop(self) -> None:
        if self.config.get("does") == "fail at stop":
            raise ConnectError("it does not stop")


class OddTask(SourceTask):
    def start(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)
        self._stopped = threading.Event()
        self._sent = False
        if config.get("does") == "task fails":
            raise ConnectError(f"no login with {config['password']}")

    def poll(self) -> Sequence[SourceRecord] | None:
        if self._config.get("does") == "task hangs":
            time.sleep(600)
        if self._sent:
            self._stopped.wait(0.1)
            return None
        self._sent = True
        value = self._config.get("number", "")
        topic = self._config.get("topic", "odd")
        return [
            SourceRecord(
                topic,
                None,
                None,
                None,
                Schema(STRING),
                value,
                source_partition={"a": 1},
                source_offset={"at": 1},
            )
        ]

    def stop(self) -> None:
        self._stopped.set()


PLUGINS = [Plugin(Kind.SOURCE, "connect_plugins.Odd", "connect_plugins:Odd", None, "odd")]
