"""Each expression is refused, or compiles to Python that fails only while it computes a value."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from felice.pipelines.sql import types
from felice.pipelines.sql.expressions.code import Code
from felice.pipelines.sql.expressions.compiler import Compiler
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.functions.table import SCALAR
from felice.pipelines.sql.syntax.cursor import Cursor
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.expressions import expression_at
from felice.pipelines.sql.syntax.tree import Column
from felice.pipelines.sql.syntax.types import type_at
from felice.pipelines.sql.syntax.writer import expression_text, shown_text
from properties.pipelines.test_sql_syntax import expressions

_TYPES = {
    "I": "INTEGER",
    "L": "BIGINT",
    "D": "DOUBLE",
    "C": "DECIMAL(4, 2)",
    "S": "STRING",
    "B": "BOOLEAN",
    "Y": "BYTES",
    "DT": "DATE",
    "TS": "TIMESTAMP",
    "A": "ARRAY<INTEGER>",
    "M": "MAP<STRING, DOUBLE>",
    "R": "STRUCT<F INTEGER, G ARRAY<STRING>>",
}
COLUMNS = {name: types.resolved(type_at(Cursor(text)), {}) for name, text in _TYPES.items()}
ROWS: list[dict[str, Any]] = [
    {
        "I": -5,
        "L": 1 << 40,
        "D": 2.5,
        "C": Decimal("12.30"),
        "S": "a b",
        "B": True,
        "Y": b"ab",
        "DT": 18_000,
        "TS": 1_526_075_913_000,
        "A": [1, None, -2],
        "M": {"a": 1.5, "b": None},
        "R": (1, ["x"]),
    },
    dict.fromkeys(COLUMNS),
]


class _Columns:
    def column(self, given: Column) -> Code:
        kind = COLUMNS.get(given.name)
        if kind is None:
            raise SqlError(f"column {given.name} cannot be resolved", given.position)
        return Code(f"c_{given.name}", kind, is_simple=True)


def check(expression: Any) -> None:
    """Compiles an expression, and computes it for each row. What it must not be is no Python, or without a name."""
    compiler = Compiler(_Columns(), built_in(), {})
    try:
        code = compiler.code(expression)
    except SqlError as error:
        assert error.reason
        return
    body = "".join(f"    {line}\n" for one in compiler.names.definitions for line in one.splitlines())
    space = dict(compiler.names.constants)
    parameters = ", ".join(f"c_{name}" for name in COLUMNS)
    exec(f"def run({parameters}):\n{body}    return {code.text}\n", space)
    for row in ROWS:
        try:
            found = space["run"](*(row[name] for name in COLUMNS))
        except NameError:
            raise
        except Exception:
            assert code.can_fail, expression_text(expression)
            continue
        assert found is not None or code.can_be_null, expression_text(expression)
        assert found is None or _fits(found, code.type), expression_text(expression)


_PYTHON = {
    "BOOLEAN": bool,
    "INTEGER": int,
    "BIGINT": int,
    "DOUBLE": float,
    "STRING": str,
    "BYTES": bytes,
    "DATE": int,
    "TIME": int,
    "TIMESTAMP": int,
}


def _fits(value: Any, kind: types.SqlType | None) -> bool:
    if value is None:
        return True
    match kind:
        case types.Primitive(name):
            return type(value) is _PYTHON[name]
        case types.Decimal(_, scale):
            return type(value) is Decimal and -value.as_tuple().exponent == scale
        case types.Array(element):
            return type(value) is list and all(_fits(one, element) for one in value)
        case types.Map(key, element):
            return all(_fits(name, key) and _fits(one, element) for name, one in value.items())
        case types.Struct(fields):
            return len(value) == len(fields) and all(map(_fits, value, (one for _, one in fields)))
    return False


@given(expressions)
def test_any_expression_is_refused_or_compiles(expression: Any) -> None:
    check(expression)


values = st.sampled_from(
    [
        *COLUMNS,
        *("NULL", "0", "-1", "3000000000", "1.50", "-2.5E0", "'a'", "'12'", "'2020-01-02'", "TRUE"),
        *("A[I]", "M['a']", "R->F", "R->G", "x", "y"),
    ]
)


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def built(pattern: str) -> st.SearchStrategy[str]:
        return st.tuples(*[inner] * pattern.count("{}")).map(lambda parts: pattern.format(*parts))

    operators = st.sampled_from(["+", "-", "*", "/", "%", "||", "=", "<", ">=", "<>", "AND", "OR"])
    kinds = st.sampled_from([*_TYPES.values(), "TIME", "ARRAY<STRING>", "STRUCT<F BIGINT, H STRING>"])
    names = st.sampled_from(sorted({one.name for one in built_in() if one.kind == SCALAR}))
    return st.one_of(
        st.tuples(inner, operators, inner).map(lambda one: f"({one[0]} {one[1]} {one[2]})"),
        st.tuples(inner, kinds).map(lambda one: f"CAST({one[0]} AS {one[1]})"),
        st.tuples(names, st.lists(inner, max_size=3)).map(lambda one: f"{one[0]}({', '.join(one[1])})"),
        built("(-({}))"),
        built("(NOT {})"),
        built("({} IS NULL)"),
        built("({} IS DISTINCT FROM {})"),
        built("({} BETWEEN {} AND {})"),
        built("({} IN ({}, {}))"),
        built("({} LIKE {})"),
        built("CASE WHEN {} THEN {} ELSE {} END"),
        built("CASE WHEN B THEN {} WHEN I = 1 THEN {} ELSE {} END"),
        built("CASE {} WHEN {} THEN {} END"),
        built("COALESCE({}, {})"),
        built("ARRAY[{}, {}]"),
        built("MAP('k' := {}, 'l' := {})"),
        built("STRUCT(F := {}, H := {})"),
        built("({})[{}]"),
        built("TRANSFORM({}, x => {})"),
        built("FILTER({}, x => {})"),
        built("REDUCE({}, {}, (x, y) => {})"),
        built("TRANSFORM({}, (x, y) => {}, (x, y) => {})"),
        st.tuples(inner, operators, st.integers(9, 20)).map(
            lambda one: f"({f' {one[1]} '.join([one[0]] * one[2])})"
        ),
    )


@given(st.recursive(values, larger, max_leaves=12))
def test_an_expression_with_fitting_types_compiles_to_what_it_says(text: str) -> None:
    try:
        expression = expression_at(Cursor(text))
    except SqlError:
        return
    check(expression)
    assert shown_text(expression)
