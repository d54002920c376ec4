"""GROUP BY: the aggregates of a query, its windows, and expressions over both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from felice.pipelines.sql.analysis.names import WINDOW_BOUNDS
from felice.pipelines.sql.analysis.plan import AGGREGATES, GROUPS, AggregateCall, WindowPlan
from felice.pipelines.sql.analysis.rewriting import parts_of, rewritten
from felice.pipelines.sql.analysis.typing import Typing
from felice.pipelines.sql.expressions.calls import chosen, parameter_type, result_type
from felice.pipelines.sql.functions.signatures import LambdaShape
from felice.pipelines.sql.functions.table import AGGREGATE, TABLE, FunctionTable, Settings
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import Call, Column, Expression, Literal, Star, Window, placed
from felice.pipelines.sql.syntax.writer import expression_text
from felice.pipelines.sql.types import BIGINT, STRING, SqlType

DAY_MS = 86_400_000


def is_of_kind(given: Any, kind: str, functions: FunctionTable) -> bool:
    """Whether it is the call of an aggregate, or of a table function."""
    return isinstance(given, Call) and any(one.kind == kind for one in functions.named(given.function))


def first_of_kind(given: Any, kind: str, functions: FunctionTable) -> Call | None:
    """The first call of such a function in an expression."""
    calls = (one for one in parts_of(given) if isinstance(one, Call))
    return next((one for one in calls if is_of_kind(one, kind, functions)), None)


class Aggregation:
    """Collects the aggregates of a query while its expressions are rewritten."""

    def __init__(
        self,
        typing: Typing,
        groups: Sequence[Expression],
        settings: Settings,
        *,
        has_window: bool,
        is_of_table: bool,
    ) -> None:
        self._settings = settings
        self._typing, self._groups = typing, list(groups)
        self._has_window, self._is_of_table = has_window, is_of_table
        self._calls: dict[Call, int] = {}
        self.aggregates: list[AggregateCall] = []
        self.group_types = [typing.type_of(one) for one in groups]

    @property
    def columns(self) -> dict[tuple[str, str], SqlType]:
        """The types of the columns that stand for aggregates, groups and the bounds of windows."""
        found = {(AGGREGATES, str(number)): one.result for number, one in enumerate(self.aggregates)}
        found |= {(GROUPS, str(number)): one for number, one in enumerate(self.group_types)}
        return found | ({(GROUPS, name): BIGINT for name in WINDOW_BOUNDS} if self._has_window else {})

    def rewritten(self, given: Expression, where: str) -> Any:
        """An expression of SELECT or HAVING over aggregates and groups. Raises `SqlError`."""

        def change(one: Any) -> Any:
            if one in self._groups:
                return placed(Column(str(self._groups.index(one)), GROUPS), one.position)
            if is_of_kind(one, AGGREGATE, self._typing.functions):
                return placed(Column(str(self._number(one)), AGGREGATES), one.position)
            if isinstance(one, Column):
                if self._has_window and one.source is None and one.name in WINDOW_BOUNDS:
                    return placed(Column(one.name, GROUPS), one.position)
                return None if one.source == GROUPS else self._check_column(one, given, where)
            return None

        return rewritten(given, change)

    def _check_column(self, one: Column, given: Expression, where: str) -> Column | None:
        if self._is_parameter(one, given):
            return one
        raise SqlError(
            f"{where}: {expression_text(one)} is neither in an aggregate function nor part of GROUP BY",
            one.position,
        )

    def _is_parameter(self, one: Column, given: Expression) -> bool:
        names = {name for part in parts_of(given) for name in getattr(part, "parameters", ())}
        return one.source is None and one.name in names

    def _number(self, call: Call) -> int:
        if call not in self._calls:
            self._calls[call] = len(self.aggregates)
            self.aggregates.append(self._aggregate(call))
        return self._calls[call]

    def _aggregate(self, call: Call) -> AggregateCall:
        typing = self._typing
        given: list[Expression] = []
        for one in call.arguments:
            if isinstance(one, Star):
                continue
            inner = first_of_kind(one, AGGREGATE, typing.functions) or first_of_kind(
                one, TABLE, typing.functions
            )
            if inner is not None:
                raise SqlError(f"{inner.function} cannot be inside {call.function}", inner.position)
            given.append(one)  # type: ignore[arg-type]
        codes = [typing.compiler().code(one) for one in given]
        function, bound = chosen(typing.functions, call.function, [one.type for one in codes], call.position)
        signature = function.signature
        arguments, argument_types, constants = list[Expression](), list[SqlType](), list[object]()
        types = list[SqlType]()
        for number, (tree, code) in enumerate(zip(given, codes, strict=True)):
            parameter = signature.parameter(number)
            assert parameter is not None and not isinstance(parameter.type, LambdaShape)
            types.append(parameter_type(parameter.type, bound, code.type or STRING))
            if parameter.is_constant:
                if not isinstance(tree, Literal):
                    told = expression_text(tree)
                    raise SqlError(
                        f"{call.function}: the argument {parameter.name} must be a literal, not {told}",
                        tree.position,
                    )
                constants.append(tree.value)
                continue
            arguments.append(tree)
            argument_types.append(types[-1])
        made = AggregateCall(
            function,
            tuple(arguments),
            tuple(argument_types),
            tuple(types),
            tuple(constants),
            result_type(function, bound, types, codes),
        )
        try:
            can_undo = hasattr(made.aggregate(self._settings), "undo")
        except SqlError as error:
            raise SqlError(f"{call.function}: {error.reason}", call.position) from None
        if self._is_of_table and not can_undo:
            raise SqlError(
                f"the aggregate function {call.function} cannot be applied to a table source, only to a stream source",
                call.position,
            )
        return made


def window_plan(window: Window, *, is_final: bool) -> WindowPlan:
    """The windows of a clause. Raises `SqlError`."""
    size_ms = window.size.ms
    advance_ms = window.advance.ms if window.advance is not None else size_ms
    for name, given in (
        ("SIZE" if window.kind != "SESSION" else "the gap", size_ms),
        ("ADVANCE BY", advance_ms),
    ):
        if given < 1:
            raise SqlError(f"{name} of a window must be longer than 0", window.position)
    if advance_ms > size_ms:
        raise SqlError("the windows leave gaps: ADVANCE BY must not be longer than SIZE", window.position)
    if window.grace is not None:
        grace_ms = window.grace.ms
    else:
        grace_ms = 0 if is_final else max(0, DAY_MS - size_ms)
    retention_ms = window.retention.ms if window.retention is not None else 0
    if window.retention is not None and window.grace is not None and retention_ms < size_ms + grace_ms:
        raise SqlError(
            f"RETENTION is {retention_ms} ms, and must be at least SIZE and GRACE PERIOD together, "
            f"{size_ms + grace_ms} ms",
            window.position,
        )
    if window.retention is not None and window.grace is None:
        if retention_ms < size_ms:
            raise SqlError(
                f"RETENTION is {retention_ms} ms, and must be at least SIZE, {size_ms} ms", window.position
            )
        grace_ms = min(grace_ms, retention_ms - size_ms)
    return WindowPlan(window.kind, size_ms, advance_ms, grace_ms, retention_ms)
