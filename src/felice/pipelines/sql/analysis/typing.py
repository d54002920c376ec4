"""Types of a query's expressions, and their canonical form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from felice.pipelines.sql.analysis.names import Sides
from felice.pipelines.sql.analysis.rewriting import rewritten
from felice.pipelines.sql.expressions.calls import UNITS, WITH_UNITS
from felice.pipelines.sql.expressions.code import Code
from felice.pipelines.sql.expressions.compiler import Compiler, Scope
from felice.pipelines.sql.functions.table import FunctionTable
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import Call, Column, Expression, Lambda, placed
from felice.pipelines.sql.syntax.writer import expression_text
from felice.pipelines.sql.types import SqlType


class TypedColumns:
    """A scope of columns that stand for other expressions, by their source and name, over another scope."""

    def __init__(self, below: Scope, columns: Mapping[tuple[str, str], Code]) -> None:
        self._below, self._columns = below, columns

    def column(self, given: Column) -> Code:
        """The code of a column. Raises `SqlError`."""
        return self._columns.get((given.source or "", given.name)) or self._below.column(given)


class Typing:
    """Types over the sides of a query."""

    def __init__(self, sides: Sides, functions: FunctionTable, users: Mapping[str, SqlType]) -> None:
        self.sides, self.functions, self.users = sides, functions, users

    def canonical(self, given: Expression) -> Any:
        """The expression with columns as they are known: with their side's name if there are several sides.

        Equal expressions have equal canonical forms. Raises `SqlError` for a column that is not known.
        """
        return self._canonical(given, frozenset())

    def _canonical(self, given: Any, parameters: frozenset[str]) -> Any:
        def change(one: Any) -> Any:
            if isinstance(one, Lambda):
                inner = parameters | set(one.parameters)
                return placed(Lambda(one.parameters, self._canonical(one.body, inner)), one.position)
            if isinstance(one, Call) and one.function in WITH_UNITS:
                return self._with_unit(one, parameters)
            if not isinstance(one, Column) or (one.source is None and one.name in parameters):
                return one if isinstance(one, Column) else None
            if (one.source or "").startswith("\0"):
                return one
            field = self.sides.field(one)
            several = len(self.sides.sides) > 1
            return placed(
                Column(field.name, self.sides.sides[field.side].alias if several else None), one.position
            )

        return rewritten(given, change)

    def _with_unit(self, call: Call, parameters: frozenset[str]) -> Call:
        arguments = tuple(
            one
            if isinstance(one, Column) and one.source is None and one.name in UNITS
            else self._canonical(one, parameters)
            for one in call.arguments
        )
        return placed(Call(call.function, arguments), call.position)

    def compiler(self, columns: Mapping[tuple[str, str], SqlType] | None = None) -> Compiler:
        """A compiler over the sides, and over more columns."""
        codes = {place: Code("_", type_, is_simple=True) for place, type_ in (columns or {}).items()}
        scope: Scope = TypedColumns(self.sides, codes) if codes else self.sides
        return Compiler(scope, self.functions, self.users)

    def type_of(self, given: Expression, columns: Mapping[tuple[str, str], SqlType] | None = None) -> SqlType:
        """The type of an expression. Raises `SqlError`, also for an expression that is always NULL."""
        found = self.compiler(columns).code(given).type
        if found is None:
            raise SqlError(
                "Can't infer a type of null. Please explicitly cast it to a required type, e.g. CAST(null AS VARCHAR). "
                f"It is always null: {expression_text(given)}",
                given.position,
            )
        return found
