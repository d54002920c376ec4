"""Divides a text into statements, and puts the values of variables into them.

Keeps true: a variable has the value that the last DEFINE before the statement gave it. Positions are those of the text,
            with the names of variables in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping

from felice.dataclass import dataclass
from felice.pipelines.sql.syntax.errors import BEGIN, Position, SqlSyntaxError
from felice.pipelines.sql.syntax.statements import statement_of
from felice.pipelines.sql.syntax.tokens import Kind, Token, each_token
from felice.pipelines.sql.syntax.tree import Define, Statement

_VARIABLE = re.compile(r"\$?\$\{([\w.-]+)\}", re.ASCII)
_PART = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|`(?:[^`]|``)*`|\"(?:[^\"]|\"\")*\"|\$?\$\{[\w.-]+\}",
    re.DOTALL | re.ASCII,
)
"""What may have variables, and comments, which have none."""


LONGEST = 1_000_000
"""How many characters a statement may have: ksqlDB's must fit into a record of Kafka."""


@dataclass(frozen=True, slots=True)
class Written:
    """A statement, and its text with the values of variables, without the semicolon."""

    statement: Statement
    text: str


def statements_of(text: str, variables: MutableMapping[str, str] | None = None) -> Iterator[Written]:
    """The statements of a text. Each ends with a semicolon; the last one need not.

    DEFINE and UNDEFINE change `variables`. Raises `SqlSyntaxError` at the first piece that is no statement, when those
    before it have been yielded.
    """
    known: MutableMapping[str, str] = {} if variables is None else variables
    for piece, tokens in pieces_of(text):
        begin = tokens[0].position
        found = with_values(piece, known, begin)
        statement = statement_of(tokens if found == piece else found, begin)
        if isinstance(statement, Define):
            define(statement, known)
        yield Written(statement, found)


def define(given: Define, variables: MutableMapping[str, str]) -> bool:
    """Apply DEFINE or UNDEFINE. The case of names does not matter. Returns whether the variable was defined before."""
    before = [one for one in variables if one.upper() == given.name.upper()]
    for name in before:
        del variables[name]
    if given.value is not None:
        variables[given.name] = given.value
    return bool(before)


def pieces_of(text: str) -> Iterator[tuple[str, list[Token]]]:
    """The texts between semicolons, with their tokens, the last of which is the end; those without a token are left
    out.
    """
    found: list[Token] = []
    for token in each_token(text):
        if found and token.start - found[0].start > LONGEST:
            raise _too_long(found[0].position)
        if not (token.kind is Kind.END or token.is_sign(";")):
            found.append(token)
        elif found:
            end = token._replace(kind=Kind.END, text="", value="")
            yield text[found[0].start : token.start].rstrip(), [*found, end]
            found = []


def next_piece(text: str, at: int = 0, begin: Position = BEGIN) -> tuple[list[Token], Token]:
    """The tokens from the character `at` on, whose position is `begin`, and the semicolon behind them, or the end.

    What follows is not read. Raises `SqlSyntaxError`, which is an `UnfinishedText` if more text may repair it.
    """
    found: list[Token] = []
    for token in each_token(text, begin, at):
        if token.kind is Kind.END or token.is_sign(";"):
            return found, token
        found.append(token)
    raise AssertionError("the last token is the end")


def with_values(text: str, variables: MutableMapping[str, str], begin: Position) -> str:
    """The text with values in place of `${name}`. In quotes, those of a value are doubled, and in comments nothing is
    replaced. The case of names does not matter, and `$${name}` is `${name}`. Raises `SqlSyntaxError` for an unknown
    name.
    """
    if "${" not in text:
        return text
    by_name = {name.upper(): value for name, value in variables.items()}
    length = len(text)

    def value_of(match: re.Match[str]) -> str:
        nonlocal length
        if match[0].startswith("$$"):
            return match[0][1:]
        found = by_name.get(match[1].upper())
        if found is None:
            raise SqlSyntaxError(f"the variable {match[1]} is not defined; DEFINE {match[1]} = '...';", begin)
        length += len(found)
        if length > LONGEST:
            raise _too_long(begin)
        return found

    def part_of(match: re.Match[str]) -> str:
        part = match[0]
        quote = part[0]
        if part.startswith(("--", "/*")):
            return part
        if quote == "$":
            return _VARIABLE.sub(value_of, part)
        inside = _VARIABLE.sub(lambda one: value_of(one).replace(quote, quote * 2), part[1:-1])
        return f"{quote}{inside}{quote}"

    return _PART.sub(part_of, text)


def _too_long(position: Position) -> SqlSyntaxError:
    return SqlSyntaxError(f"a statement may have {LONGEST:,} characters, and this one has more", position)
