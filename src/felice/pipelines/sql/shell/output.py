"""Where the shell's text goes: to the terminal or standard output, and perhaps also to a file.

Keeps true: text of a server or a topic cannot control the terminal. With JSON, standard output has only JSON.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import TextIO

from felice.pipelines.sql.shell.client import ShellError

TABULAR, JSON = "TABULAR", "JSON"
PROMPT = "ksql> "
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def harmless(text: str) -> str:
    """The text with escapes in place of control characters other than tab and line feed."""
    # In this form they are right in a text of JSON, too.
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Output:
    """Standard output and standard error, with a format of results."""

    def __init__(self, form: str = TABULAR) -> None:
        self.form = form
        self._spool: TextIO | None = None

    @property
    def is_json(self) -> bool:
        """Whether results are JSON."""
        return self.form == JSON

    @property
    def width(self) -> int | None:
        """The columns of the terminal; None if there is none, so that lines may have any length."""
        return shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    def show(self, text: str) -> None:
        """Writes a result."""
        self._write(text, sys.stdout)

    def show_json(self, value: object) -> None:
        """Writes a result as JSON."""
        self.show(json.dumps(value, indent=2, ensure_ascii=False))

    def tell(self, text: str) -> None:
        """Writes what is no result: that something was done."""
        self._write(text, sys.stderr if self.is_json else sys.stdout)

    def complain(self, text: str) -> None:
        """Writes an error."""
        self._write(text, sys.stderr)

    def _write(self, text: str, stream: TextIO) -> None:
        text = harmless(text)
        print(text, file=stream, flush=True)
        if self._spool is not None:
            print(text, file=self._spool, flush=True)

    def spool_statement(self, text: str) -> None:
        """Writes what was typed to the spool only: the terminal shows it already."""
        if self._spool is not None:
            print(harmless(f"{PROMPT}{text}"), file=self._spool, flush=True)

    def spool_to(self, path: Path) -> None:
        """From now on also writes to this file. Raises `ShellError`."""
        self.end_spool()
        try:
            self._spool = path.open("w", encoding="utf-8")
        except OSError as error:
            raise ShellError(f"{path}: {error.strerror or error}") from None

    def end_spool(self) -> bool:
        """Ends that; whether there was a file."""
        if self._spool is None:
            return False
        self._spool.close()
        self._spool = None
        return True
