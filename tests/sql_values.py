"""Values of SQL's expressions, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from felice.pipelines.sql.expressions.code import Code
from felice.pipelines.sql.expressions.compiler import Compiler
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.functions.table import FunctionTable
from felice.pipelines.sql.syntax.cursor import Cursor
from felice.pipelines.sql.syntax.expressions import expression_at
from felice.pipelines.sql.syntax.tree import Column
from felice.pipelines.sql.types import SqlType


class _Columns:
    def __init__(self, types: Mapping[str, SqlType]) -> None:
        self._types = types

    def column(self, given: Column) -> Code:
        return Code(f"column_{given.name}", self._types[given.name], is_simple=True)


def value_of(
    text: str, functions: FunctionTable | None = None, **columns: tuple[SqlType, Any]
) -> tuple[SqlType | None, Any]:
    """The type and the value of an expression; columns have a type and a value."""
    compiler = Compiler(
        _Columns({name: one[0] for name, one in columns.items()}), functions or built_in(), {}
    )
    code = compiler.code(expression_at(Cursor(text)))
    space = dict(compiler.names.constants) | {f"column_{name}": one[1] for name, one in columns.items()}
    exec("\n".join(compiler.names.definitions), space)
    return code.type, eval(code.text, space)
