"""The schema registry that `felice start --registry` runs beside the brokers, as a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from felice.cli.faults import Fault

if TYPE_CHECKING:
    from felice.config import BrokerConfig
    from felice.server.process.companion import Companion


_MOST_REPLICAS = 3


class RegistryBeside:
    """Call `find_listener` before the brokers start, set `ports` when they serve, and run `companion` then."""

    def __init__(self, port: int, brokers: int, log_format: str, log_level: str) -> None:
        self._words = [
            *("--port", str(port), "--replication-factor", str(min(brokers, _MOST_REPLICAS))),
            *("--log-format", log_format, "--log-level", log_level),
        ]
        self._listener, self._host = "", ""
        self.ports: Mapping[str, int] = {}
        """The ports of the first broker by the names of its listeners."""

    def find_listener(self, config: BrokerConfig) -> None:
        """Chooses the listener through which the registry talks to the brokers. Raises `Fault` if none is fit."""
        for listener in config.parsed_listeners:
            if config.security_of(listener.name).protocol == "PLAINTEXT":
                everywhere = listener.host in ("", "0.0.0.0", "::")
                self._listener, self._host = listener.name, "127.0.0.1" if everywhere else listener.host
                return
        raise Fault("--registry needs a listener without TLS and log in; start `felice registry` by itself")

    def companion(self) -> Companion:
        """The process."""
        from felice.server.process.companion import Companion

        return Companion("the schema registry", self._command, click.echo)

    def _command(self, descriptor: int) -> list[str]:
        from felice.env.processes import PYTHON

        host = f"[{self._host}]" if ":" in self._host else self._host
        return [
            *(PYTHON, "-m", "felice.cli.main", "registry", "--parent-descriptor", str(descriptor)),
            *("--bootstrap-server", f"{host}:{self.ports[self._listener]}", *self._words),
        ]
