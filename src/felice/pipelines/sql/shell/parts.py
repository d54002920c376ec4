"""Divides what is typed into statements and commands of the shell.

Keeps true: a statement ends with its semicolon, and not within quotes or a comment. A command of the shell ends with a
            semicolon or its line. What has not ended is the rest, to which more may be added.
"""

from __future__ import annotations

import re

from felice.dataclass import dataclass
from felice.pipelines.sql.syntax.errors import Position, SqlError, SqlSyntaxError, UnfinishedText
from felice.pipelines.sql.syntax.scripts import next_piece
from felice.pipelines.sql.syntax.tokens import Token

COMMANDS = {
    "exit": "End the shell; so do quit and Ctrl-D.",
    "quit": "End the shell.",
    "help": "Show this list.",
    "clear": "Clear the screen.",
    "version": "Show the versions of the shell and of the server.",
    "server": "Show the server; server URL: talk to another one.",
    "output": "Show the format of results; output TABULAR, output JSON: choose it.",
    "history": "Show what was typed before.",
    "spool": "spool 'FILE': also write statements and results to a file; spool off: end that.",
    "run script": "run script 'FILE': run the statements of a file.",
    "set cli": "set cli COLUMN-WIDTH n: the width of columns of rows, 0 for one that fits the screen; "
    "set cli WRAP ON, OFF: break long values, or cut them.",
}
"""The commands of the shell, and what each does."""

_NAMES = "|".join(COMMANDS).replace(" ", r"[ \t]+")
_COMMAND = re.compile(
    rf"({_NAMES})(?![\w'])"
    r"[ \t]*((?:'[^'\n]*'|[^;\n'])*)(?:;|\n|\Z)",
    re.IGNORECASE,
)
_EMPTY = re.compile(r"(?:\s+|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the shell."""

    name: str
    """One of `COMMANDS`."""
    argument: str
    text: str
    position: Position


@dataclass(frozen=True, slots=True)
class Sql:
    """A statement, whatever it is, with its first tokens."""

    tokens: tuple[Token, ...]
    text: str
    """Without the semicolon."""
    position: Position

    def begins(self, *words: str) -> bool:
        """Whether these are its first words, which are in capitals."""
        found = self.tokens[: len(words)]
        return len(found) == len(words) and all(map(Token.is_word, found, words))


@dataclass(frozen=True, slots=True)
class Broken:
    """A text that is no statement, up to the next semicolon."""

    error: SqlError
    text: str
    position: Position


Part = Command | Sql | Broken


def parts_of(text: str) -> tuple[list[Part], str]:
    """The statements and commands that have ended, and the rest of the text, which is empty if nothing follows."""
    found, place = _divided(text)
    return found, text[place.at :]


def all_parts_of(text: str) -> list[Part]:
    """Those of a whole text, whose last statement needs no semicolon."""
    found, place = _divided(text)
    rest = text[place.at :]
    if not rest:
        return found
    ended, more = parts_of(text + "\n;")  # Its last line may end with a comment.
    if not more:
        return ended
    try:
        next_piece(rest, 0, place.position)
    except SqlSyntaxError as error:
        return [*found, Broken(error, rest, place.position)]
    raise AssertionError("a text that has not ended is in quotes or a comment")


def _divided(text: str) -> tuple[list[Part], _Place]:
    found: list[Part] = []
    place = _Place()
    while (at := place.forward(text, _end_of_space(text, place.at))) < len(text):
        part, end = _part_at(text, at, place.position)
        if part is None:
            break
        if part.text:
            found.append(part)
        place.forward(text, end)
    return found, place


class _Place:
    """A character of a text, and its position."""

    def __init__(self) -> None:
        self.at, self._line, self._line_start = 0, 1, 0

    @property
    def position(self) -> Position:
        return Position(self._line, self.at - self._line_start + 1)

    def forward(self, text: str, at: int) -> int:
        if lines := text.count("\n", self.at, at):
            self._line += lines
            self._line_start = text.rindex("\n", self.at, at) + 1
        self.at = at
        return at


def _end_of_space(text: str, at: int) -> int:
    found = _EMPTY.match(text, at)
    assert found is not None, "it also matches nothing"
    return found.end()


def _part_at(text: str, at: int, position: Position) -> tuple[Part | None, int]:
    """What begins here, and where it ends; None if it has not ended."""
    if command := _COMMAND.match(text, at):
        name = " ".join(command[1].lower().split())
        written = command[0].rstrip("\n").rstrip().removesuffix(";")
        return Command(name, command[2].strip(), written, position), command.end()
    try:
        tokens, end = next_piece(text, at, position)
    except UnfinishedText:
        return None, at
    except SqlSyntaxError as error:
        semicolon = text.find(";", at)
        if semicolon < 0:
            return None, at
        return Broken(error, text[at:semicolon].rstrip(), position), semicolon + 1
    if not end.text:
        return None, at
    return Sql(tuple(tokens), text[at : end.start].rstrip(), position), end.start + 1
