"""Builds the Python source of compiled readers and writers.

Keeps true:  every line is linked to the fields that it handles, so that an error in compiled code can name its field,
             although the code contains no field names.
             Adjacent fixed-width values become one `struct.Struct` call.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from types import TracebackType
from typing import Any

from felice.dataclass import dataclass


@dataclass(slots=True)
class Compiled:
    """A compiled function, and for each of its lines the fields that it handles, with their widths."""

    call: Callable[..., Any]  # generated code: its types depend on the message
    lines: list[list[tuple[str, int]]]

    def fields_at(self, traceback: TracebackType | None) -> tuple[list[tuple[str, int]], dict[str, object]]:
        """Return the fields of the line at which an exception left this function, and the local variables there."""
        while traceback is not None:
            if traceback.tb_frame.f_code is self.call.__code__:
                return self.lines[traceback.tb_lineno - 1], traceback.tb_frame.f_locals
            traceback = traceback.tb_next
        return [], {}


@dataclass(slots=True)
class Source:
    """The lines of one function, and the constants that they use."""

    namespace: dict[str, object]
    text: list[str] = field(default_factory=list)
    lines: list[list[tuple[str, int]]] = field(default_factory=list)
    depth: int = 0
    names: int = 0

    def add(self, line: str, *fields: tuple[str, int]) -> None:
        """Append a line that handles `fields`, each given as (path, width in bytes)."""
        self.text.append("    " * self.depth + line)
        self.lines.append(list(fields))

    @contextmanager
    def block(self, line: str, *fields: tuple[str, int]) -> Iterator[None]:
        """Append a line that opens a block, and indent what follows."""
        self.add(line, *fields)
        self.depth += 1
        yield
        self.depth -= 1

    def fresh(self, prefix: str) -> str:
        """Return a new unique name."""
        self.names += 1
        return f"{prefix}{self.names}"

    def constant(self, prefix: str, value: object) -> str:
        """Return the name by which compiled code refers to `value`."""
        for name, known in self.namespace.items():
            if known is value and name.startswith(prefix):
                return name
        name = self.fresh(prefix)
        self.namespace[name] = value
        return name

    def packer(self, formats: str, method: str) -> str:
        """Return the name of the bound method of a big-endian Struct."""
        name = f"{method}_{formats.replace('?', 'bool')}"
        self.namespace.setdefault(name, getattr(struct.Struct(">" + formats), method))
        return name

    def compile(self, name: str, label: str) -> Compiled:
        """Execute the source and return its function."""
        exec(compile("\n".join(self.text), f"<{label}>", "exec"), self.namespace)
        function = self.namespace[name]
        assert callable(function)
        return Compiled(function, self.lines)
