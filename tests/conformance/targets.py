"""The broker under test: Felice by default, Apache Kafka with FELICE_CONFORMANCE_TARGET=apache.

Keeps true: both run with the same settings, so a test that passes against Apache Kafka states Kafka's rule.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from conformance.wire import DEFAULT_TIMEOUT_S, Wire
from peers.apache_kafka import ApacheKafka

TARGET = os.environ.get("FELICE_CONFORMANCE_TARGET", "felice")
IS_APACHE = TARGET == "apache"

# Rebalances at once and few offsets partitions: the rules do not depend on them, the time does.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "offset.metadata.max.bytes": "4096",
    # Tests write records with old timestamps. Retention would delete them while the tests still read them.
    "log.retention.check.interval.ms": "86400000",
}

# After this time `impatient_broker` closes an idle connection.
IDLE_S = 1.5


class Target:
    """One running broker. Tests use only `bootstrap` and `log_dir`."""

    def __init__(self, overrides: Mapping[str, str] | None = None, data_dir: Path | None = None) -> None:
        self._owned = None if data_dir else Path(tempfile.mkdtemp(prefix="conformance-"))
        self.directory = data_dir or self._owned or Path()
        self._settings = {**SETTINGS, **(overrides or {})}
        self._broker: Any = None

    def start(self) -> "Target":
        if IS_APACHE:
            self._broker = ApacheKafka(self._settings, self.directory)
            self._broker.start()
            self.log_dir = self._broker.log_dir
        else:
            self._broker = self._embedded()
            self.log_dir = self.directory
        self.bootstrap: str = self._broker.bootstrap
        return self

    def _embedded(self) -> Any:
        from felice.server.process.embedded import EmbeddedBroker

        return EmbeddedBroker(self.directory, properties=self._settings)

    def stop(self) -> None:
        if self._broker is None:
            return
        self._broker.stop()
        self._broker = None

    def restart(self) -> None:
        """Stops cleanly and starts again on the same directory, maybe on another port."""
        self.stop()
        self.start()

    def close(self) -> None:
        self.stop()
        if self._owned:
            shutil.rmtree(self._owned, ignore_errors=True)

    def wire(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> Wire:
        return Wire(self.bootstrap, timeout_s)

    def __enter__(self) -> "Target":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
