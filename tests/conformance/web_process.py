"""A command that serves HTTP, as a process, started as a user starts it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2

LIMIT_S = 100
FELICE = (sys.executable, "-m", "felice.cli.main")


class WebProcess:
    """`felice` with these words. The line with which it says that it is ready has its address, which is `url`."""

    def __init__(self, words: Sequence[str], ready: str, log: Path) -> None:
        self.log = log
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [*FELICE, *words],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(ready), f"{line!r}; {log.read_text()}"
        self.url = line.removeprefix(ready).strip()
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

    def __enter__(self) -> Self:
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
