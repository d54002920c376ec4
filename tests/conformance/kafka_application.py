"""One of Kafka's own programs as a process. Tests wait for lines of its output."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from peers.applications import application_command, require_applications

STOP_TIMEOUT_S = 150.0
SAID_TIMEOUT_S = 120.0
LOG_OPTIONS = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)


class KafkaApplication:
    def __init__(
        self, directory: Path, main_class: str, *arguments: str, options: Sequence[str] = ()
    ) -> None:
        require_applications()
        directory.mkdir(parents=True, exist_ok=True)
        self._errors = directory / f"{main_class.rpartition('.')[2]}.stderr"
        with self._errors.open("ab") as stderr:
            self._process = subprocess.Popen(
                application_command(main_class, *arguments, options=[*LOG_OPTIONS, *options]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=directory,
                text=True,
                env={**os.environ, "LOG_DIR": str(directory)},
            )
        self._said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._said.append(line.rstrip("\n"))

    def said(self, pattern: str) -> list[str]:
        return [line for line in self._said if re.fullmatch(pattern, line)]

    def wait_said(self, pattern: str, timeout_s: float = SAID_TIMEOUT_S) -> str:
        deadline = time.monotonic() + timeout_s
        while not (found := self.said(pattern)):
            assert time.monotonic() < deadline, f"it did not say {pattern}: {self.account()}"
            assert self.is_alive(), f"it ended: {self.account()}"
            time.sleep(0.05)
        return found[0]

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def errors(self) -> str:
        return self._errors.read_text(errors="replace")

    def account(self) -> str:
        """The end of the output, for the message of a failed test."""
        return "\n".join(self._said[-20:]) + "\n" + self.errors()[-3000:]

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def stop(self) -> None:
        """Stops the program by closing its input if it reads that, otherwise by SIGTERM."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.terminate()
        self._end()

    def finish(self) -> None:
        """Closes the input and waits until the program ends by itself."""
        assert self._process.stdin
        self._process.stdin.close()
        self._end()

    def _end(self) -> None:
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(STOP_TIMEOUT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe and not pipe.closed:
                pipe.close()

    def __enter__(self) -> KafkaApplication:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_alive():
            self.kill()
        else:
            self._end()
