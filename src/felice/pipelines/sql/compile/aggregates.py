"""The functions of an aggregation. Its state is a tuple with the state of each aggregate function.

Values of an aggregation are tuples: the number of the row, if an aggregate depends on the order of rows, and then the
arguments of all aggregates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from felice.pipelines.sql.analysis.plan import Grouping
from felice.pipelines.sql.functions.table import AggregateError, Settings
from felice.pipelines.sql.syntax.writer import expression_text
from felice.pipelines.sql.types import BIGINT, SqlType
from felice.pipelines.streams.copies import Constant

Columns = tuple[tuple[str, SqlType], ...]


class Aggregates:
    """The aggregates of a query."""

    def __init__(self, grouping: Grouping, settings: Settings) -> None:
        self._calls = grouping.aggregates
        self._made = [one.aggregate(settings) for one in self._calls]
        self.is_ordered = any(one.function.is_ordered for one in self._calls)
        names = (
            f"{one.function.name}({', '.join(map(expression_text, one.arguments))})" for one in self._calls
        )
        self.state: Columns = tuple(
            (name, one.state_type) for name, one in zip(names, self._made, strict=True)
        )
        """The columns of the state. Their names say what was aggregated."""
        self.results: list[Callable[[Any], Any]] = [one.result for one in self._made]
        """The functions from a state of an aggregate to its value."""

    @property
    def arguments(self) -> Columns:
        """The columns of the aggregation's values."""
        number: Columns = (("NUMBER", BIGINT),) if self.is_ordered else ()
        types = [type_ for one in self._calls for type_ in one.argument_types]
        return number + tuple((f"A{place}", type_) for place, type_ in enumerate(types))

    def initial(self) -> Callable[[], tuple[Any, ...]]:
        """The function that gives the state before the first row. It is always the same one."""
        made = self._made

        def initial() -> tuple[Any, ...]:
            return tuple(one.initial() for one in made)

        try:
            return Constant(initial())
        except AggregateError:
            return initial  # A user's function, whose error stops the query.

    def adder(self) -> Callable[[Any, Any, Any], Any]:
        """The function of key, values and state that adds a row."""
        return self._stepping("add")

    def subtractor(self) -> Callable[[Any, Any, Any], Any]:
        """The function that takes a row away."""
        return self._stepping("undo")

    def merge(self, key: Any, one: Sequence[Any], other: Sequence[Any]) -> tuple[Any, ...]:
        """The state of two sessions that became one."""
        return tuple(made.merge(own, next_) for made, own, next_ in zip(self._made, one, other, strict=True))

    def _stepping(self, method: str) -> Callable[[Any, Any, Any], Any]:
        place = 1 if self.is_ordered else 0
        names: dict[str, Any] = {}
        calls = ""
        for number, (call, made) in enumerate(zip(self._calls, self._made, strict=True)):
            names[f"f{number}"] = getattr(made, method)
            arguments = [f"values[{place + offset}]" for offset in range(len(call.argument_types))]
            place += len(arguments)
            given = [f"state[{number}]", *(["values[0]"] if call.function.is_ordered else []), *arguments]
            text = getattr(made, "texts", {}).get(method)
            if text is None:
                calls += f"f{number}({', '.join(given)}), "
            else:
                calls += f"({text.format(*arguments, state=given[0])}), "
        made_here: dict[str, Any] = {}
        exec(f"def make({', '.join(names)}):\n    return lambda key, values, state: ({calls})\n", made_here)
        function: Callable[[Any, Any, Any], Any] = made_here["make"](*names.values())
        return function
