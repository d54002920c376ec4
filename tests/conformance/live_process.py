"""A Felice broker in a process of its own, started as a user starts it: its output, its exit code, its memory."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from conformance.wire import DEFAULT_TIMEOUT_S, Wire

START_TIMEOUT_S = 100.0
STOP_TIMEOUT_S = 100.0
READY = "Felice is ready on PLAINTEXT://"


PROGRAM = ("-m", "felice.cli.main")


def start_command(
    data_dir: Path, port: int, options: Mapping[str, str], program: Sequence[str] = PROGRAM
) -> list[str]:
    command = [sys.executable, *program, "start", "--data-dir", str(data_dir), "--port", str(port)]
    for name, value in options.items():
        command += ["-o", f"{name}={value}"]
    return command


def start_in_vain(data_dir: Path, port: int = 0, **options: str) -> subprocess.CompletedProcess[str]:
    """A start that should be refused: its output and exit code."""
    named = {name.replace("_", "."): value for name, value in options.items()}
    return subprocess.run(
        start_command(data_dir, port, named), capture_output=True, text=True, timeout=START_TIMEOUT_S
    )


class LiveProcess:
    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        options: Mapping[str, str] | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self.data_dir = data_dir
        self._log = data_dir.with_name(data_dir.name + ".stderr")
        with self._log.open("wb") as stderr:
            self._process = subprocess.Popen(
                start_command(data_dir, port, options or {}, program),
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line.startswith(READY), f"{line!r}; {self.stderr()}"
        self.bootstrap = line.removeprefix(READY).strip()
        self.port = int(self.bootstrap.rpartition(":")[2])

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def stderr(self) -> str:
        return self._log.read_text(errors="replace")

    def memory_bytes(self) -> int:
        """Resident memory now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def wire(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> Wire:
        return Wire(self.bootstrap, timeout_s)

    def kill(self) -> None:
        """Kills the process, as a power failure would, except that the kernel's page cache survives."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """Asks the process to stop; returns its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        if self.is_alive():
            self._process.send_signal(how)
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            if self._process.stdout:
                self._process.stdout.close()

    def __enter__(self) -> "LiveProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
