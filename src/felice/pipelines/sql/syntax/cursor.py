"""Takes the tokens of a text one by one.

Keeps true: a refusal names the place, what was expected there, and what came.
            Parts may be nested `DEEPEST` times: more would exhaust the interpreter's stack. There may be `MOST_PARTS`
            values, calls and signs: their analysis and compilation take some 0.1 ms each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from felice.pipelines.sql.syntax.errors import BEGIN, Position, SqlSyntaxError
from felice.pipelines.sql.syntax.tokens import Kind, Token, tokens_of
from felice.pipelines.sql.syntax.tree import UNITS_MS, Duration, placed

T = TypeVar("T")
DEEPEST = 64
MOST_PARTS = 50_000
LONGEST_MS = (1 << 63) - 1
_RESERVED = """
    ALL AND AS AT BETWEEN BY CASE CAST CONNECTOR CONNECTORS CREATE DELETE DESCRIBE DISTINCT DROP ELSE END EXISTS EXPLAIN
    FALSE FROM FULL GROUP HAVING IN INNER INSERT INTO IS JOIN LEFT LIKE LIMIT LIST LOAD NOT NULL ON OR OUTER PROPERTIES
    QUERIES QUERY RIGHT RUN SCRIPT SELECT STREAM STREAMS TABLE TERMINATE THEN TO TOPIC TOPICS TRUE UNSET VALUES WHEN
    WHERE WINDOW WITH WITHIN
"""
RESERVED = frozenset(_RESERVED.split())
"""Words that are no names unless they are quoted."""


class Cursor:
    """The tokens of a text, and the next one. The text begins at the position `begin` of a longer one. In its place
    there may be tokens, the last of which is the end.
    """

    def __init__(self, text: str | Sequence[Token], begin: Position = BEGIN) -> None:
        self._tokens = tokens_of(text, begin) if isinstance(text, str) else text
        self._at = 0
        self._depth = self._parts = 0

    @property
    def next(self) -> Token:
        """The next token, which stays the next one."""
        return self._tokens[self._at]

    @property
    def position(self) -> Position:
        """Where the next token is."""
        return self.next.position

    def after_next(self, count: int = 1) -> Token:
        """The token so many places after the next one; at the end of the text, the end."""
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    def take(self) -> Token:
        """The next token, which is gone then."""
        token = self.next
        if token.kind is not Kind.END:
            self._at += 1
        return token

    def take_words(self, *words: str) -> bool:
        """Take these words if all of them come next, one after the other."""
        if not self._tokens[self._at].is_word(words[0]):
            return False
        if not all(self.after_next(number).is_word(word) for number, word in enumerate(words)):
            return False
        self._at += len(words)
        return True

    def take_sign(self, *signs: str) -> str | None:
        """Take one of these signs, if it comes next."""
        return self.take().text if self.next.is_sign(*signs) else None

    def expect_words(self, *words: str) -> None:
        """Take these words. Raises `SqlSyntaxError` if others come."""
        for word in words:
            if not self.take_words(word):
                raise self.refused(word)

    def expect_sign(self, sign: str) -> None:
        """Take this sign. Raises `SqlSyntaxError` if another token comes."""
        if self.take_sign(sign) is None:
            raise self.refused(repr(sign))

    def one_of(self, *words: str) -> str:
        """Take one of these words. Raises `SqlSyntaxError` if another token comes."""
        if not self.next.is_word(*words):
            raise self.refused(*words)
        return self.take().value

    def name(self, what: str = "a name") -> str:
        """Take a name: a word that is not reserved, in capitals, or a quoted one as it is written."""
        token = self.next
        if token.kind is Kind.QUOTED and token.value:
            return self.take().value
        if token.kind is Kind.NAME and token.value not in RESERVED:
            return self.take().value
        if token.kind is Kind.NAME:
            raise SqlSyntaxError(
                f"expected {what}, and {token.text!r} is a reserved word; as a name it is written `{token.value}`",
                token.position,
            )
        raise self.refused(what)

    @property
    def next_may_be_alias(self) -> bool:
        """Whether a name comes next, and no word with which a clause begins."""
        token = self.next
        if token.kind is Kind.QUOTED:
            return True
        return token.kind is Kind.NAME and token.value not in RESERVED and not self._begins_clause()

    def _begins_clause(self) -> bool:
        return any(
            self.next.is_word(first) and self.after_next().is_word(*second)
            for first, second in (("PARTITION", ("BY",)), ("EMIT", ("CHANGES", "FINAL")))
        )

    def word(self, what: str) -> str:
        """Take a word, reserved or not, as it is written."""
        if self.next.kind is not Kind.NAME:
            raise self.refused(what)
        return self.take().text

    def string(self, what: str = "a text in single quotes") -> str:
        """Take a text."""
        if self.next.kind is not Kind.TEXT:
            raise self.refused(what)
        return self.take().value

    def integer(self, what: str = "a whole number") -> int:
        """Take a whole number."""
        if self.next.kind is not Kind.INTEGER:
            raise self.refused(what)
        return int(self.take().text)

    def duration(self) -> Duration:
        """Take a length of time, such as 5 MINUTES."""
        position = self.position
        count = self.integer("a length of time, such as 5 MINUTES")
        for unit in UNITS_MS:
            if self.take_words(unit) or self.take_words(unit[:-1]):
                if count * UNITS_MS[unit] > LONGEST_MS:
                    raise SqlSyntaxError(f"{count} {unit} are more milliseconds than a BIGINT has", position)
                return placed(Duration(count, unit), position)
        raise self.refused(*UNITS_MS)

    def list_of(self, parse: Callable[[], T]) -> tuple[T, ...]:
        """Parse one or several parts with commas between them."""
        found = [parse()]
        while self.take_sign(","):
            found.append(parse())
        return tuple(found)

    def in_parentheses(self, parse: Callable[[], T]) -> tuple[T, ...]:
        """Parse one or several parts in parentheses, with commas between them."""
        self.expect_sign("(")
        found = self.list_of(parse)
        self.expect_sign(")")
        return found

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Within, a part of a part is parsed. Raises `SqlSyntaxError` if that is nested too deep."""
        if self._depth == DEEPEST:
            raise SqlSyntaxError(f"expressions and types are nested more than {DEEPEST} times", self.position)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def count_part(self) -> None:
        """Count a part of an expression. Raises `SqlSyntaxError` for the first one that is too much."""
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise SqlSyntaxError(
                f"the expressions of a statement may have {MOST_PARTS:,} values, calls and signs, and these have more",
                self.position,
            )

    def refused(self, *expected: str) -> SqlSyntaxError:
        """The error to raise: one of these was expected, and the next token came."""
        choices = list(dict.fromkeys(expected))
        told = choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"
        return SqlSyntaxError(f"expected {told}", self.position, self.next.told())
