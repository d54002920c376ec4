"""What is wrong with a statement, and where."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """A place in a text; both numbers begin with 1."""

    line: int
    column: int


BEGIN = Position(1, 1)


class SqlError(Exception):
    """A statement that cannot be run. The text says why, and what would be right."""

    def __init__(self, reason: str, position: Position | None = None) -> None:
        where = "" if position is None else f"line {position.line}:{position.column}: "
        super().__init__(where + reason)
        self.reason, self.position = reason, position


class SqlSyntaxError(SqlError):
    """A text that is not a statement. `got` is the first unexpected part of the text."""

    def __init__(self, reason: str, position: Position | None = None, got: str | None = None) -> None:
        super().__init__(reason if got is None else f"{reason}, and got {got}", position)
        self._without_text = reason

    def without_text(self) -> SqlError:
        """The same error, without a part of the text."""
        return SqlError(self._without_text, self.position)


class UnfinishedText(SqlSyntaxError):
    """A text that ends within quotes or a comment: more of it may follow."""
