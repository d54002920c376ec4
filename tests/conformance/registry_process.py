"""`felice registry` as a process, started as a user starts it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx2
import pytest

READY = "The schema registry is ready on "
LIMIT_S = 100


def registry_command(bootstrap: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "felice.cli.main", "registry", "--bootstrap-server", bootstrap, *words]


class RegistryProcess:
    """A registry at a free port. `url` is its address."""

    def __init__(self, bootstrap: str, log: Path, *words: str, port: int = 0) -> None:
        self.log = log
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                registry_command(bootstrap, "--replication-factor", "1", "--port", str(port), *words),
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(READY), f"{line!r}; {log.read_text()}"
        self.url = line.removeprefix(READY).strip()
        self.port = int(self.url.rpartition(":")[2])

    def call(self, method: str, path: str, body: Any = None, **arguments: Any) -> Any:
        """The JSON of an answer; for an error its status and code."""
        arguments.setdefault("timeout", LIMIT_S)
        answer = httpx2.request(method, self.url + path, json=body, trust_env=False, **arguments)
        found = answer.json()
        return found if answer.status_code == 200 else (answer.status_code, found["error_code"])

    def stop(self) -> int:
        """Stops it as Ctrl-C does, and returns its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self._ended()

    def kill(self) -> None:
        """Kills it."""
        self.process.kill()
        self._ended()

    def _ended(self) -> int:
        code = self.process.wait(LIMIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def __enter__(self) -> RegistryProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.kill()
        elif self.process.stdout is not None:
            self.process.stdout.close()


def own(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Options for a topic and a group of the test's own."""
    name = re.sub(r"\W", "_", request.node.name)
    return "--topic", f"_schemas_{name}", "--group", f"registry_{name}"
