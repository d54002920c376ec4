"""A kit for authors of connectors: runs a task in processes of its own, and kills them in each phase of their work.

    from felice.testing import felice_broker
    from felice.testing.connectors import PHASES, ConnectorKit

    def test_nothing_is_lost(tmp_path):
        with felice_broker(topics=["numbers"]) as broker:
            config = {"name": "numbers", "connector.class": "numbers", "topic": "numbers"}
            kit = ConnectorKit(broker.bootstrap, config, directory=tmp_path)
            for phase in PHASES:
                kit.kill(phase)
            with kit.running():
                ...  # wait until all records have arrived, and compare

The task is made as a worker makes it: with its converters, transformations, offsets, and exactly once for a source.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from felice.client.admin import AdminClient, NewTopic
from felice.client.error import KafkaException

PHASES = ("read", "transform", "write", "flush", "commit")
"""What a task does in turn: read, convert and transform, write, wait until it is written, commit offsets."""

_STRINGS = "org.apache.kafka.connect.storage.StringConverter"
_TIMEOUT_S = 30.0


class TaskFailed(AssertionError):
    """The task failed by itself. The text has its trace."""


class ConnectorKit:
    """A connector with one task, which is started and killed."""

    def __init__(
        self,
        bootstrap: str,
        config: Mapping[str, str],
        *,
        directory: Path,
        plugin: str | None = None,
        worker: Mapping[str, str] | None = None,
    ) -> None:
        """Starts nothing yet.

        `config` is the connector's, with its name. `plugin` is its class as `module:class`, unless an installed package
        has it as an entry point. `worker` are options of the worker; its converters are StringConverter, and it
        supports exactly once. `directory` gets the log of the tasks.
        """
        self._config = dict(config)
        offsets = f"{config['name']}-offsets"
        self._plugin = plugin
        self._worker = {
            "bootstrap.servers": bootstrap,
            "group.id": f"{config['name']}-workers",
            "key.converter": _STRINGS,
            "value.converter": _STRINGS,
            "header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
            "offset.storage.topic": offsets,
            "offset.flush.interval.ms": "100",
            "exactly.once.source.support": "enabled",
            **(worker or {}),
        }
        self._log = directory / f"{config['name']}.log"
        _create_topic(bootstrap, self._worker["offset.storage.topic"])

    def kill(self, phase: str, *, call: int = 1, before: bool = False, within_s: float = 10.0) -> None:
        """Starts a task, which is killed in a phase: after the `call`-th call there, or `before` it.

        A task that makes fewer calls is killed after `within_s`. Raises `TaskFailed` if it fails by itself.
        """
        if phase not in PHASES:
            raise ValueError(f"expected one of the phases {', '.join(PHASES)}, found {phase}")
        process = self._start(phase, call, before=before)
        try:
            code = process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        finally:
            _close_input(process)
        if code >= 0:
            raise TaskFailed(f"the task ended with {code} before it was killed:\n{self.log[-4000:]}")

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """A task that runs until the block ends, and then stops as a worker stops it. Raises `TaskFailed`."""
        process = self._start(None, 0, before=False)
        try:
            yield process
        finally:
            _close_input(process)
            try:
                code = process.wait(_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
        if code != 0:
            raise TaskFailed(f"the task ended with {code}:\n{self.log[-4000:]}")

    @property
    def log(self) -> str:
        """What the tasks have written to standard error."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def _start(self, phase: str | None, call: int, *, before: bool) -> subprocess.Popen[bytes]:
        given = {
            "worker": self._worker,
            "connector": self._config,
            "plugin": self._plugin,
            "phase": phase,
            "call": call,
            "before": before,
        }
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "felice.testing.connectors.task"],
                stdin=subprocess.PIPE,
                stderr=log,
                # The connector may be in a module of the tests.
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        assert process.stdin is not None
        process.stdin.write(json.dumps(given).encode() + b"\n")
        process.stdin.flush()
        return process


def _close_input(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def _create_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [made] = admin.create_topics([NewTopic(name, 1, 1, config={"cleanup.policy": "compact"})]).values()
    try:
        made.result()
    except KafkaException as error:
        if error.error.name() != "TOPIC_ALREADY_EXISTS":
            raise
