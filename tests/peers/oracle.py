"""A Java program that answers questions one after the other: a line of JSON for each."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class Oracle:
    """One running program."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ask(self, question: Any) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the oracle ended at {question}"
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def running(command: Sequence[str]) -> Iterator[Oracle]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
    )
    try:
        yield Oracle(process)
    finally:
        process.kill()
        process.communicate()
