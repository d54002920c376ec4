"""The writer of SQL and its parser are each other's reverse, and no text makes the parser fail in another way."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.scripts import statements_of
from felice.pipelines.sql.syntax.statements import statement_of
from felice.pipelines.sql.syntax.tree import (
    ArrayOf,
    ArrayType,
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Column,
    Duration,
    Element,
    Field,
    In,
    IsNull,
    Join,
    Lambda,
    Like,
    Literal,
    MapOf,
    MapType,
    Query,
    Selected,
    Source,
    Star,
    StructOf,
    StructStar,
    StructType,
    TypeName,
    Unary,
    Window,
    Within,
)
from felice.pipelines.sql.syntax.writer import query_text

WORDS = [
    "A",
    "B1",
    "KEY",
    "ROWTIME",
    "lower",
    "Mixed",
    "FROM",
    "a b",
    "x`y",
    'q"r',
    "ARRAY",
    "MAP",
    "STRUCT",
    "é",
    "1R",
]
names = st.sampled_from(WORDS) | st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=4)
numbers = st.integers(-(1 << 63), (1 << 63) - 1)
values = (
    st.none()
    | st.booleans()
    | st.text(max_size=5)
    | numbers
    | st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
)
literals = values.map(Literal)
types = st.recursive(
    st.builds(TypeName, names, st.lists(st.integers(0, 40), max_size=2).map(tuple)),
    lambda inner: (
        st.builds(ArrayType, inner)
        | st.builds(MapType, inner, inner)
        | st.builds(StructType, st.lists(st.tuples(names, inner), max_size=2).map(tuple))
    ),
    max_leaves=4,
)
columns = st.builds(Column, names, st.none() | names)
flags = st.booleans()


def larger(inner: st.SearchStrategy) -> st.SearchStrategy:  # type: ignore[type-arg]
    lists = st.lists(inner, min_size=1, max_size=3).map(tuple)
    arithmetic = st.sampled_from(
        ["+", "-", "*", "/", "%", "||", "=", "<>", "<", "<=", ">", ">=", "AND", "OR"]
    )
    pairs = st.tuples(inner, inner)
    return st.one_of(
        st.builds(Field, inner, names),
        st.builds(Element, inner, inner),
        st.builds(Unary, st.sampled_from(["-", "+", "NOT"]), inner),
        st.builds(Binary, arithmetic | st.just("IS DISTINCT FROM"), inner, inner),
        st.builds(IsNull, inner, flags),
        st.builds(Between, inner, inner, inner, flags),
        st.builds(In, inner, lists, flags),
        st.builds(Like, inner, inner, st.none() | st.characters(exclude_categories=["Cs"]), flags),
        st.builds(
            Case, st.none() | inner, st.lists(pairs, min_size=1, max_size=2).map(tuple), st.none() | inner
        ),
        st.builds(Cast, inner, types),
        st.builds(ArrayOf, st.just(()) | lists),
        st.builds(MapOf, st.lists(pairs, max_size=2).map(tuple)),
        st.builds(StructOf, st.lists(st.tuples(names, inner), max_size=2).map(tuple)),
        st.builds(
            Call,
            st.sampled_from(["UCASE", "MY_FUNCTION"]),
            st.just((Star(),))
            | st.lists(inner, max_size=2).map(tuple)
            | st.tuples(inner, st.builds(Lambda, st.lists(names, min_size=1, max_size=2).map(tuple), inner)),
        ),
    )


expressions = st.recursive(literals | columns, larger, max_leaves=8)
durations = st.builds(
    Duration, st.integers(0, 1000), st.sampled_from(["DAYS", "HOURS", "MINUTES", "SECONDS", "MILLISECONDS"])
)
sources = st.builds(Source, names, st.none() | names)
windows = st.builds(
    Window,
    st.sampled_from(["TUMBLING", "SESSION"]),
    durations,
    st.none(),
    st.none() | durations,
    st.none() | durations,
) | st.builds(Window, st.just("HOPPING"), durations, durations, st.none() | durations, st.none() | durations)
selected = (
    st.builds(Selected, expressions, st.none() | names)
    | st.builds(Star, st.none() | names)
    | st.builds(StructStar, columns)
)
queries = st.builds(
    Query,
    st.lists(selected, min_size=1, max_size=3).map(tuple),
    sources,
    st.lists(
        st.builds(
            Join,
            st.sampled_from(["INNER", "LEFT", "RIGHT", "FULL"]),
            sources,
            expressions,
            st.none() | st.builds(Within, durations, durations, st.none() | durations),
        ),
        max_size=2,
    ).map(tuple),
    st.none() | windows,
    st.none() | expressions,
    st.lists(expressions, max_size=2).map(tuple),
    st.lists(expressions, max_size=2).map(tuple),
    st.none() | expressions,
    st.none() | st.sampled_from(["CHANGES", "FINAL"]),
    st.none() | st.integers(0, 99),
)


@given(queries)
def test_a_query_that_was_written_is_parsed_to_the_same_tree(query: Query) -> None:
    text = query_text(query)
    found = statement_of(text)
    assert found == query, text
    assert query_text(found) == text  # type: ignore[arg-type]


@given(expressions)
def test_an_expression_that_was_written_is_parsed_to_the_same_tree(expression: object) -> None:
    query = Query((Selected(expression),), Source("S"))  # type: ignore[arg-type]
    assert statement_of(query_text(query)) == query


_TOKENS = r"""
    SELECT FROM WHERE GROUP BY HAVING EMIT CHANGES CREATE STREAM TABLE AS WITH KEY INSERT INTO VALUES WINDOW TUMBLING
    SIZE CASE WHEN THEN END CAST ARRAY MAP STRUCT NOT IN BETWEEN AND LIKE IS NULL DISTINCT JOIN WITHIN ON ASSERT EXPLAIN
    SHOW PRINT DEFINE ( ) [ ] < > , ; . -> => := = - * || ' ` " 1 1.5 2e3 a b 'x' ${v} /* */ --
"""
TOKENS = [*_TOKENS.split(), "\n"]


@given(st.lists(st.sampled_from(TOKENS), max_size=30).map(" ".join) | st.text(max_size=40))
def test_a_text_is_parsed_or_refused_with_its_place(text: str) -> None:
    try:
        list(statements_of(text))
    except SqlError as error:
        assert error.position is not None and str(error).startswith(f"line {error.position.line}:")


@given(st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=0, max_value=100))
def test_a_decimal_keeps_its_digits(value: Decimal) -> None:
    query = Query((Selected(Literal(value)),), Source("S"))
    found = statement_of(query_text(query))
    assert str(found.columns[0].expression.value) == str(value)  # type: ignore[union-attr]
