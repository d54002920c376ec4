"""GROUP BY: the aggregates of a query, its windows, and expressions over both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from felice.pipelines.java.texts import DAY_MS
from felice.pipelines.sql.analysis.names import WINDOW_BOUNDS, check_bounds
from felice.pipelines.sql.analysis.plan import AGGREGATES, GROUPS, AggregateCall, WindowPlan
from felice.pipelines.sql.analysis.rewriting import parts_of, rewritten
from felice.pipelines.sql.analysis.typing import Typing
from felice.pipelines.sql.expressions.calls import chosen, parameter_type, result_type
from felice.pipelines.sql.functions.signatures import LambdaShape
from felice.pipelines.sql.functions.table import AGGREGATE, FunctionTable, Settings
from felice.pipelines.sql.syntax.errors import Position, SqlError
from felice.pipelines.sql.syntax.tree import Call, Column, Expression, Lambda, Literal, Star, Window, placed
from felice.pipelines.sql.syntax.writer import expression_text
from felice.pipelines.sql.types import BIGINT, STRING, SqlType

MOST_WINDOWS = 100_000
"""Windows in which a record may be: each costs as much as a record."""


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
        self._foreign: dict[str, list[str]] = {}
        """What is neither in GROUP BY nor in an aggregate function, by the beginning of its error message."""
        self.aggregates: list[AggregateCall] = []
        self.group_types = [typing.type_of(one) for one in groups]

    @property
    def columns(self) -> dict[tuple[str, str], SqlType]:
        """The types of the columns that stand for aggregates, groups and the bounds of windows."""
        found = {(AGGREGATES, str(number)): one.result for number, one in enumerate(self.aggregates)}
        found |= {(GROUPS, str(number)): one for number, one in enumerate(self.group_types)}
        return found | ({(GROUPS, name): BIGINT for name in WINDOW_BOUNDS} if self._has_window else {})

    def rewritten(self, given: Expression, where: str) -> Any:
        """An expression of SELECT or HAVING over aggregates and groups, for `check`. Raises `SqlError`."""
        is_aggregate = first_of_kind(given, AGGREGATE, self._typing.functions) is not None

        def change(one: Any) -> Any:
            if one in self._groups:
                return placed(Column(str(self._groups.index(one)), GROUPS), one.position)
            if is_of_kind(one, AGGREGATE, self._typing.functions):
                return placed(Column(str(self._number(one)), AGGREGATES), one.position)
            if isinstance(one, Column):
                if self._has_window and one.source is None and one.name in WINDOW_BOUNDS:
                    return placed(Column(one.name, GROUPS), one.position)
                if one.source != GROUPS and not self._is_parameter(one, given):
                    self._keep_foreign(one, given, where, is_aggregate=is_aggregate)
                return None
            return None

        return rewritten(given, change)

    def _keep_foreign(self, one: Column, given: Expression, where: str, *, is_aggregate: bool) -> None:
        if where == "HAVING":
            why, told = "Non-aggregate HAVING expression", one
        elif is_aggregate:
            why, told = "Column used in aggregate SELECT expression(s) outside of aggregate functions", one
        else:
            why, told = "Non-aggregate SELECT expression(s)", given  # type: ignore[assignment]
        texts = self._foreign.setdefault(why, [])
        if (text := expression_text(told)) not in texts:
            texts.append(text)

    def check(self, position: Position) -> None:
        """Raise `SqlError` for an aggregation without aggregates, and for columns that are in no group."""
        if not self.aggregates:
            raise SqlError(
                "GROUP BY requires aggregate functions in either the SELECT or HAVING clause", position
            )
        for why, texts in sorted(self._foreign.items(), reverse=True):
            told = ", ".join(texts)
            raise SqlError(
                f"{why} not part of GROUP BY: {told}; add it to GROUP BY, or give it to an aggregate function",
                position,
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
        if self._has_window:
            check_bounds(call.arguments)
        for one in call.arguments:
            if isinstance(one, Star):
                continue
            inner = first_of_kind(one, AGGREGATE, typing.functions)
            if inner is not None:
                nested = f"{call.function}({inner.function}())"
                raise SqlError(f"Aggregate functions can not be nested: {nested}", inner.position)
            if isinstance(one, Lambda):
                raise SqlError(f"{call.function} does not take a lambda", one.position)
            given.append(one)
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
                        f"Parameter {number + 1} passed to function {call.function} must be a literal constant, but "
                        f"was expression: '{told}'",
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
                f"The aggregation function(s) ({call.function}) cannot be applied to a table source, only to a stream "
                "source",
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
    if size_ms // advance_ms > MOST_WINDOWS:
        raise SqlError(
            f"each record would be in {size_ms // advance_ms:,} windows, and may be in {MOST_WINDOWS:,}: "
            "make SIZE shorter or ADVANCE BY longer",
            window.position,
        )
    if window.grace is not None:
        grace_ms = window.grace.ms
    else:
        grace_ms = 0 if is_final else max(0, DAY_MS - size_ms)
    retention_ms = window.retention.ms if window.retention is not None else 0
    if window.retention is not None and window.grace is not None and retention_ms < size_ms + grace_ms:
        raise SqlError(
            "The retention period of the window store must be no smaller than its window size plus the grace period: "
            f"RETENTION is {retention_ms} ms, and SIZE and GRACE PERIOD are {size_ms + grace_ms} ms together",
            window.position,
        )
    if window.retention is not None and window.grace is None:
        if retention_ms < size_ms:
            raise SqlError(
                "The retention period of the window store must be no smaller than its window size: RETENTION is "
                f"{retention_ms} ms, and SIZE is {size_ms} ms",
                window.position,
            )
        grace_ms = min(grace_ms, retention_ms - size_ms)
    return WindowPlan(window.kind, size_ms, advance_ms, grace_ms, retention_ms)
