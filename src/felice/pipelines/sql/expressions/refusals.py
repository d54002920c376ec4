"""Why expressions are refused, where several parts of one do not fit each other. The phrases are ksqlDB's."""

from __future__ import annotations

from collections.abc import Sequence

from felice.pipelines.sql import types
from felice.pipelines.sql.expressions.code import Code
from felice.pipelines.sql.expressions.coercion import told
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import Binary, Case, Element, Expression, Literal
from felice.pipelines.sql.syntax.writer import shown_text
from felice.pipelines.sql.types import BOOLEAN, SqlType, Struct, text_of


def check_boolean(code: Code, given: Expression, where: str) -> Code:
    """The code of a condition. Raises `SqlError` for another type."""
    if code.type not in (BOOLEAN, None):
        raise SqlError(
            f"type error in {where} expression: should evaluate to boolean but is {shown_text(given)} "
            f"({told(code)}) instead.",
            given.position,
        )
    return code


def different_values(given: Case, codes: Sequence[Code]) -> SqlError:
    """The error for a CASE whose values have no common type."""
    known: SqlType | None = None
    for (when, then), code in zip(given.branches, codes, strict=False):
        wider = code.type if known is None or code.type is None else types.common(known, code.type)
        if known is not None and wider is None and code.type is not None:
            return SqlError(
                "invalid Case expression. Type for all 'THEN' clauses should be the same.\n"
                f"THEN expression 'WHEN {shown_text(when)} THEN {shown_text(then)}' has type: {told(code)}.\n"
                f"Previous THEN expression(s) type: {text_of(known)}.",
                then.position,
            )
        known = wider or known
    assert known is not None and given.otherwise is not None, "some two values differ"
    return SqlError(
        "invalid Case expression. Type for the default clause should be the same as for 'THEN' clauses.\n"
        f"THEN type: {text_of(known)}.\nDEFAULT type: {told(codes[-1])}.",
        given.otherwise.position,
    )


def without_type(what: str, given: Expression) -> SqlError:
    """The error for a list of NULLs."""
    return SqlError(f"cannot construct {what}. Cast a NULL to the desired type", given.position)


def no_condition(when: Expression, code: Code) -> SqlError:
    """The error for WHEN with another type."""
    return SqlError(
        f"WHEN operand type should be boolean.\nType for '{shown_text(when)}' is {told(code)}", when.position
    )


def no_arithmetic(given: Binary, left: Code, right: Code) -> SqlError:
    """The error for an operator that does not take these types."""
    return SqlError(
        f"error processing expression: {shown_text(given)}. Unsupported arithmetic types. {told(left)} {told(right)}",
        given.position,
    )


def no_elements(given: Element, of: Code) -> SqlError:
    """The error for an index of a value that has no elements."""
    hint = ""
    if isinstance(of.type, Struct):
        field = given.index.value if isinstance(given.index, Literal) else shown_text(given.index)
        hint = f" Use the dereference operator for STRUCTS: {shown_text(given.of)}->{field}"
    return SqlError(
        f"subscript expression ({shown_text(given)}) do not apply to {told(of)}.{hint}", given.position
    )
