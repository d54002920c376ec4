"""The names of types as the author of a .proto text wrote them, such as `Status` for `.shop.Order.Status`.

protoc resolves each name to its full form. Its `SourceCodeInfo` has the place of every name in the text, by the path
of the field in the descriptor: `[4, 0, 2, 1, 6]` is the type name (6) of the second field (2) of the first message (4).

Keeps true:  a name that is returned denotes the type that protoc resolved it to: it is the end of the full name.
"""

from __future__ import annotations

import re
from typing import Any

Path = tuple[int, ...]
"""A place in a FileDescriptorProto: numbers of fields and indexes in turn, as `SourceCodeInfo.Location` has it."""

_NAME = re.compile(r"\.?[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_MAP = re.compile(r"map\s*<\s*\w+\s*,\s*([\w.]+)\s*>", re.ASCII)
_TAB_COLUMNS = 8
"""protoc counts columns up to the next multiple of this after a tab."""


class WrittenNames:
    """The names in `text`, the UTF-8 that protoc compiled to `file` (a FileDescriptorProto with source info)."""

    def __init__(self, text: bytes, file: Any) -> None:
        self._lines = text.split(b"\n")
        self._spans: dict[Path, tuple[int, ...]] = {}
        for location in file.source_code_info.location:
            self._spans.setdefault(tuple(location.path), tuple(location.span))

    def type_name(self, path: Path, full_name: str) -> str:
        """The name at `path`, or `full_name` (which begins with a dot) if the text has it in an unusual form."""
        written = self._written(path)
        if in_map := _MAP.fullmatch(written):
            written = in_map[1]
        if not _NAME.fullmatch(written):
            return full_name
        same = written == full_name if written.startswith(".") else full_name.endswith("." + written)
        return written if same else full_name

    def position(self, path: Path) -> tuple[int, ...]:
        """Line and column of the declaration at `path`: sorts declarations in the order of the text."""
        return self._spans.get(path, ())[:2]

    def _written(self, path: Path) -> str:
        span = self._spans.get(path, ())
        if len(span) != 3:  # 4 numbers: a name over several lines
            return ""
        line = self._lines[span[0]]
        return line[_offset(line, span[1]) : _offset(line, span[2])].decode(errors="replace")


def _offset(line: bytes, column: int) -> int:
    """The index in `line` of the byte that protoc counts as `column`."""
    if b"\t" not in line:
        return column
    at = 0
    for index, byte in enumerate(line):
        if at >= column:
            return index
        at = at + 1 if byte != 0x09 else at - at % _TAB_COLUMNS + _TAB_COLUMNS
    return len(line)
