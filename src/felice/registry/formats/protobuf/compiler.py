"""Compiles .proto schemas with protoc, in a child process that may die without harm.

Keeps true:  every request ends within a limit of processor time and memory, with an answer or `InvalidSchema`.
How:         a `worker` process answers one request after another. The kernel limits its memory and, for each request,
             its processor time; a worker that died is replaced at the next request.
Why a process:  protoc trusts its input. With 5 MiB of text it can crash (options that nest 100,000 deep overflow its
             stack), run for minutes (100,000 reserved numbers), and take 700 MiB of memory. In a thread of a
             registry each of these would be the end of the registry. A process for each request would cost 140 ms; a
             process that stays costs 30 MiB while it is used, and 1 to 10 ms for a usual schema.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from felice.registry.formats.schema import InvalidSchema

CPU_LIMIT_S = 10
"""Processor time that a schema may take. 1 MiB of messages takes 1.5 seconds, 5 MiB take 8 seconds."""

MEMORY_LIMIT_BYTES = 1024 * 1024 * 1024
"""Address space of a worker. 5 MiB of messages take 0.8 GiB."""

IDLE_LIMIT_S = 60.0
"""A worker without requests for so long ends."""

WALL_LIMIT_S = 120.0
"""A worker that has not answered for so long is killed, whatever it waits for."""

_MAX_ANSWER_BYTES = 256 * 1024 * 1024
_LENGTH = struct.Struct(">I")
_WORKER = "felice.registry.formats.protobuf.worker"


class _Ended(Exception):
    """The worker ended instead of answering."""


class Compiler:
    """One worker process, which the first request starts. Threads may share a compiler; they take turns."""

    def __init__(
        self,
        *,
        cpu_limit_s: int = CPU_LIMIT_S,
        memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
        idle_limit_s: float = IDLE_LIMIT_S,
        wall_limit_s: float = WALL_LIMIT_S,
    ) -> None:
        self._cpu_limit_s = cpu_limit_s
        self._memory_limit_bytes = memory_limit_bytes
        self._idle_limit_s = idle_limit_s
        self._wall_limit_s = wall_limit_s
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[bytes] | None = None

    def compile(self, text: str, references: Mapping[str, str], form: str) -> tuple[str, bytes]:
        """The .proto text in a form of `worker.FORMS`, and the FileDescriptorSet with the schema as its last file.

        Raises `InvalidSchema`, and `ModuleNotFoundError` if protoc is not installed.
        """
        request = json.dumps({"text": text, "references": dict(references), "form": form}).encode()
        answer = self._ask(request)
        if "error" in answer:
            raise InvalidSchema(answer["error"])
        if "fault" in answer:
            raise RuntimeError(f"the parser of Protobuf schemas failed: {answer['fault']}")
        return answer["text"], base64.b64decode(answer["files"])

    def close(self) -> None:
        """Ends the worker. A later request starts another."""
        with self._lock:
            self._end()

    def _ask(self, request: bytes) -> Any:
        with self._lock:
            # A worker may end in peace (idle, or large) just before it has read the request.
            for _ in range(3):
                try:
                    return self._exchange(self._running(), request)
                except _Ended:
                    status = self._end()
                    if status != 0:
                        raise InvalidSchema(self._reason(status)) from None
            raise RuntimeError("the process that parses Protobuf schemas ends without an answer")

    def _exchange(self, worker: subprocess.Popen[bytes], request: bytes) -> Any:
        assert worker.stdin is not None and worker.stdout is not None
        watch = threading.Timer(self._wall_limit_s, worker.kill)
        watch.daemon = True
        watch.start()
        try:
            worker.stdin.write(_LENGTH.pack(len(request)) + request)
            worker.stdin.flush()
            head = worker.stdout.read(_LENGTH.size)
            if len(head) < _LENGTH.size:
                raise _Ended
            length = _LENGTH.unpack(head)[0]
            if length > _MAX_ANSWER_BYTES:
                worker.kill()
                raise _Ended
            body = worker.stdout.read(length)
            if len(body) < length:
                raise _Ended
            return json.loads(body)
        except BrokenPipeError:
            raise _Ended from None
        finally:
            watch.cancel()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._worker is not None and self._worker.poll() is None:
            return self._worker
        self._end()
        if find_spec("grpc_tools") is None:
            missing = "Protobuf schemas need grpcio-tools; install it: pip install 'felice[registry]'"
            raise ModuleNotFoundError(missing, name="grpc_tools")
        limits = (self._cpu_limit_s, self._memory_limit_bytes, self._idle_limit_s)
        kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        self._worker = subprocess.Popen(
            [sys.executable, "-P", "-m", _WORKER, *(str(limit) for limit in limits)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **kept},
            start_new_session=True,  # Ctrl-C is for the registry, which then closes the worker's input.
        )
        # Without the lock: a thread that is no longer needed may wait for the worker.
        atexit.register(self._worker.kill)
        return self._worker

    def _end(self) -> int:
        """Ends the worker, and returns its status: 0 also if there was none."""
        worker, self._worker = self._worker, None
        if worker is None:
            return 0
        atexit.unregister(worker.kill)
        assert worker.stdin is not None and worker.stdout is not None
        for pipe in (worker.stdin, worker.stdout):
            with suppress(BrokenPipeError):  # what is not written yet
                pipe.close()
        try:
            return worker.wait(timeout=5)
        except subprocess.TimeoutExpired:
            worker.kill()
            return worker.wait()

    def _reason(self, status: int) -> str:
        if status == -signal.SIGXCPU:
            return f"the schema takes more than {self._cpu_limit_s} seconds of processor time"
        if status == -signal.SIGKILL:
            return f"the schema takes more than {self._wall_limit_s:g} seconds"
        memory = f"{self._memory_limit_bytes // (1024 * 1024)} MiB of memory"
        return f"protoc does not get through the schema: it nests too deep, or needs more than {memory}"
