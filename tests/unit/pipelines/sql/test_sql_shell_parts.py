"""What is typed, divided into statements and commands of the shell."""

from __future__ import annotations

import pytest

from felice.pipelines.sql.shell.completion import MOST, Names, suggestions
from felice.pipelines.sql.shell.parts import Broken, Command, Sql, all_parts_of, parts_of


def texts(text: str) -> tuple[list[str], str]:
    found, rest = parts_of(text)
    return [part.text for part in found], rest


@pytest.mark.parametrize(
    ("text", "parts", "rest"),
    [
        ("", [], ""),
        (" \n -- nothing\n /* nor; this */ ;;", [], ""),
        ("SHOW STREAMS;", ["SHOW STREAMS"], ""),
        ("SHOW STREAMS", [], "SHOW STREAMS"),
        ("a 'x;y'; b `c;d` \n", ["a 'x;y'"], "b `c;d` \n"),
        ("a -- ;\n ; b /* ; */;", ["a -- ;", "b /* ; */"], ""),
        ("a 'it''s", [], "a 'it''s"),
        ("a; /* not", ["a"], "/* not"),
        ("exit", ["exit"], ""),
        ("SHOW STREAMS; output JSON; exit\nb", ["SHOW STREAMS", "output JSON", "exit"], "b"),
        ("spool ~/a b.log\nSELECT\n1;", ["spool ~/a b.log", "SELECT\n1"], ""),
        ("RUN SCRIPT 'a;b.sql'; c;", ["RUN SCRIPT 'a;b.sql'", "c"], ""),
        ("set cli wrap off\nSET 'a' = 'b';", ["set cli wrap off", "SET 'a' = 'b'"], ""),
        ("outputs;", ["outputs"], ""),
        ("a ~ b; c;", ["a ~ b", "c"], ""),
        ("a ~ b", [], "a ~ b"),
    ],
)
def test_statements_end_with_semicolons_and_commands_with_lines(
    text: str, parts: list[str], rest: str
) -> None:
    assert texts(text) == (parts, rest)


def test_kinds_and_places() -> None:
    command, sql, broken = parts_of(" output\tJSON\n\n  select 1;\n /* c */ a ~;")[0]
    assert isinstance(command, Command) and (command.name, command.argument) == ("output", "JSON")
    assert isinstance(sql, Sql) and sql.begins("SELECT") and not sql.begins("SELECT", "SELECT")
    assert isinstance(broken, Broken) and str(broken.error).startswith("line 4:12: the character '~'")
    assert [tuple(one.position) for one in (command, sql, broken)] == [(1, 2), (3, 3), (4, 10)]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a; b", ["a", "b"]),
        ("a; b -- c", ["a", "b -- c"]),
        ("a;\n-- c", ["a"]),
        ("a; b 'c", ["a", "b 'c"]),
        ("a ~ b", ["a ~ b"]),
    ],
)
def test_the_last_statement_of_a_whole_text_needs_no_semicolon(text: str, parts: list[str]) -> None:
    found = all_parts_of(text)
    assert [part.text for part in found] == parts
    assert isinstance(found[-1], Broken) == (parts[-1] in ("b 'c", "a ~ b"))


def test_an_unfinished_text_is_refused_at_its_place() -> None:
    broken = all_parts_of("a;\n b 'c")[-1]
    assert isinstance(broken, Broken)
    assert str(broken.error) == "line 2:4: a text that does not end"


NAMES = Names(("ORDERS", "odd name"), ("AMOUNT",), ("ABS", "AVG"), ("orders", "payments"), ("jdbc", "SINK"))


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("sel", ["select"]),
        ("SELECT 1; DES", ["DESCRIBE"]),
        ("SELECT * FROM O", ["ORDERS", "`odd name`", "ON", "OR", "OUTER"]),
        ("SELECT * FROM `od", ["`odd name`"]),
        ("select a", ["AMOUNT", "abs(", "avg(", "add", "all", "alter", "and", "array", "as", "assert", "at"]),
        ("PRINT ", ["'orders'", "'payments'"]),
        ("PRINT 'p", []),
        ("PRINT p", ["'payments'"]),
        ("SELECT 'or", []),
        ("ex", ["explain", "exit"]),
        ("SELECT qqq", []),
        ("DESCRIBE CONNECTOR ", ["`jdbc`", "SINK"]),
        ("drop connector i", ["if exists"]),
        ("DROP CONNECTOR IF EXISTS `j", ["`jdbc`"]),
    ],
)
def test_suggestions(before: str, words: list[str]) -> None:
    assert [word for word, _ in suggestions(before, NAMES)] == words


def test_a_suggestion_replaces_the_word_that_was_begun() -> None:
    assert suggestions("SELECT AM", NAMES) == [("AMOUNT", 2)]
    assert suggestions("DESCRIBE `od", NAMES) == [("`odd name`", 3)]


def test_suggestions_are_limited() -> None:
    many = Names(tuple(f"S{number}" for number in range(2 * MOST)))
    assert len(suggestions("DESCRIBE S", many)) == MOST
