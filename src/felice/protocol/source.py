"""Python source under construction, for the compiled readers and writers.

Keeps true:  every line remembers the field it serves, so an error found in compiled code names its field
             though the code itself carries no names around.
             Neighbouring fixed-width values become one `struct.Struct` call.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any


@dataclass(slots=True)
class Compiled:
    """A compiled function, and for each of its lines the fields it serves with the width of each."""

    call: Callable[..., Any]
    lines: list[list[tuple[str, int]]]

    def fields_at(self, traceback: TracebackType | None) -> tuple[list[tuple[str, int]], dict[str, Any]]:
        """The fields served where an exception passed through this function, and the locals there."""
        while traceback is not None:
            if traceback.tb_frame.f_code is self.call.__code__:
                return self.lines[traceback.tb_lineno - 1], traceback.tb_frame.f_locals
            traceback = traceback.tb_next
        return [], {}


@dataclass(slots=True)
class Source:
    """Lines of one function, with the constants they use."""

    namespace: dict[str, Any]
    text: list[str] = field(default_factory=list)
    lines: list[list[tuple[str, int]]] = field(default_factory=list)
    depth: int = 0
    names: int = 0

    def add(self, line: str, *fields: tuple[str, int]) -> None:
        """Append a line that serves `fields`, each given as (path, width in bytes)."""
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
        """A name not used before."""
        self.names += 1
        return f"{prefix}{self.names}"

    def constant(self, prefix: str, value: object) -> str:
        """The name under which compiled code finds `value`."""
        for name, known in self.namespace.items():
            if known is value and name.startswith(prefix):
                return name
        name = self.fresh(prefix)
        self.namespace[name] = value
        return name

    def packer(self, formats: str, method: str) -> str:
        """The name of the bound method of a big-endian Struct."""
        name = f"{method}_{formats.replace('?', 'bool')}"
        self.namespace.setdefault(name, getattr(struct.Struct(">" + formats), method))
        return name

    def compile(self, name: str, label: str) -> Compiled:
        """Execute the source and return its function."""
        exec(compile("\n".join(self.text), f"<{label}>", "exec"), self.namespace)
        return Compiled(self.namespace[name], self.lines)
