"""Divides the text of SQL into tokens, with the line and column of each.

Keeps true: the time grows with the length of the text. Each character is in a token, in white space or in a comment;
            anything else is refused with its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from felice.pipelines.sql.syntax.errors import BEGIN, Position, SqlSyntaxError, UnfinishedText


class Kind(Enum):
    """What a token is. The values are the words of error messages."""

    NAME = "a name"
    QUOTED = "a quoted name"
    TEXT = "a text"
    INTEGER = "a whole number"
    DECIMAL = "a decimal number"
    DOUBLE = "a floating-point number"
    SIGN = "a sign"
    VARIABLE = "a variable"
    END = "the end of the text"


class Token(NamedTuple):
    """A token. `text` is that of the statement; `value` is without quotes, and of a plain name in capitals."""

    kind: Kind
    text: str
    value: str
    start: int
    """The place of its first character in the text."""
    position: Position

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these words, which are in capitals."""
        return self.kind is Kind.NAME and self.value in words

    def is_sign(self, *signs: str) -> bool:
        """Whether it is one of these signs."""
        return self.kind is Kind.SIGN and self.text in signs

    def told(self) -> str:
        """The token as error messages name it."""
        return self.kind.value if self.kind is Kind.END else repr(self.text)


_TOKEN = re.compile(
    r"""
    [ ]*(?:
      (?P<space> \s+ | --[^\n]* | /\*.*?\*/ )
    | (?P<text> '(?:[^']|'')*' )
    | (?P<quoted> `(?:[^`]|``)*` | "(?:[^"]|"")*" )
    | (?P<double> (?:\d+(?:\.\d*)?|\.\d+)[eE][+-]?\d+ (?![\w@]) )
    | (?P<decimal> (?:\d+\.\d*|\.\d+) (?![\w@]) )
    | (?P<integer> \d+ (?![\w@]) )
    | (?P<name> [A-Za-z0-9_@][\w@]* )
    | (?P<variable> \$\{[\w.-]+\} )
    | (?P<sign> <> | != | <= | >= | -> | => | := | \|\| | [-+*%=<>(),.;\[\]:] | /(?!\*) )
    )""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_KINDS = {
    "text": Kind.TEXT,
    "quoted": Kind.QUOTED,
    "double": Kind.DOUBLE,
    "decimal": Kind.DECIMAL,
    "integer": Kind.INTEGER,
    "name": Kind.NAME,
    "sign": Kind.SIGN,
    "variable": Kind.VARIABLE,
}
_NUMBERS = (Kind.INTEGER, Kind.DECIMAL)
_MOST_DIGITS = 1000
_UNFINISHED = {
    "'": "a text that does not end",
    "`": "a name that does not end",
    '"': "a name that does not end",
}


def tokens_of(text: str, begin: Position = BEGIN) -> list[Token]:
    """The tokens of a text, the last of which is its end. The text begins at a position. Raises `SqlSyntaxError`."""
    return list(each_token(text, begin))


def each_token(text: str, begin: Position = BEGIN, at: int = 0) -> Iterator[Token]:
    """The tokens from the character `at` on, whose position is `begin`. Each is made when it is asked for."""
    line, line_start = begin.line, at + 1 - begin.column
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            at = len(text) - len(text[at:].lstrip(" "))
            raise _refusal(text, at, Position(line, at - line_start + 1))
        group = found.lastgroup
        at, end = found.span(group)
        piece = text[at:end]
        if group != "space":
            kind = _KINDS[group]
            if kind in _NUMBERS and len(piece) > _MOST_DIGITS:
                raise SqlSyntaxError(
                    f"a number of more than {_MOST_DIGITS} digits", Position(line, at - line_start + 1)
                )
            if kind is Kind.QUOTED and "\0" in piece:
                # The analysis names its own columns so.
                raise SqlSyntaxError("a name with the character U+0000", Position(line, at - line_start + 1))
            value = piece.upper() if kind is Kind.NAME else _value(kind, piece)
            yield Token(kind, piece, value, at, Position(line, at - line_start + 1))
        if "\n" in piece:
            line += piece.count("\n")
            line_start = at + piece.rindex("\n") + 1
        at = end
    yield Token(Kind.END, "", "", at, Position(line, at - line_start + 1))


def _value(kind: Kind, text: str) -> str:
    if kind in (Kind.TEXT, Kind.QUOTED):
        quote = text[0]
        return text[1:-1].replace(quote * 2, quote)
    return text


def _refusal(text: str, at: int, position: Position) -> SqlSyntaxError:
    if text.startswith("/*", at):
        return UnfinishedText("a comment that does not end", position)
    if text[at] in _UNFINISHED:
        return UnfinishedText(_UNFINISHED[text[at]], position)
    return SqlSyntaxError(f"the character {text[at]!r} has no meaning here", position)
