"""What a query does, as a value."""

from __future__ import annotations

from typing import NamedTuple

from felice.dataclass import dataclass
from felice.pipelines.sql.catalogue import KEY, VALUE, SourceInfo, WindowInfo
from felice.pipelines.sql.functions.table import Aggregate, Function, Settings
from felice.pipelines.sql.syntax.tree import Call, Column, Expression
from felice.pipelines.sql.types import SqlType

AGGREGATES, GROUPS, EXPLODED = "\0aggregate", "\0group", "\0exploded"
"""The sources of columns that stand for aggregates, for grouping expressions and for the values of table functions.
Their names are numbers. No statement has such names.
"""


class Side(NamedTuple):
    """A source of FROM, and what the query calls it."""

    alias: str
    source: SourceInfo


class Field(NamedTuple):
    """A column of a side. `kind` is KEY, VALUE, HEADERS, or the name of a pseudo column; `number` is its place among
    the columns of its kind.
    """

    side: int
    name: str
    type: SqlType
    kind: str
    number: int


STREAM_STREAM, STREAM_TABLE, TABLE_TABLE, FOREIGN_KEY = (
    "stream-stream",
    "stream-table",
    "table-table",
    "foreign-key",
)


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """A join of the sides before with one more side. Times are in milliseconds; `grace_ms` is None without GRACE."""

    how: str
    kind: str
    """INNER, LEFT, RIGHT or FULL."""
    left: Expression
    right: Expression
    key_type: SqlType
    moves_left: bool
    """Whether the rows before must be repartitioned by the expression, because it is not their key."""
    moves_right: bool
    before_ms: int = 0
    after_ms: int = 0
    grace_ms: int | None = None


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate function with its arguments that are no constants."""

    function: Function
    arguments: tuple[Expression, ...]
    argument_types: tuple[SqlType, ...]
    """The types of the parameters: arguments are converted to them."""
    types: tuple[SqlType, ...]
    """The types of all parameters, constants included."""
    constants: tuple[object, ...]
    result: SqlType

    def aggregate(self, settings: Settings) -> Aggregate:
        """The function that computes it. Raises `SqlError` for constants that it does not take."""
        made: Aggregate = self.function.implementation(self.types, self.constants, settings)
        return made


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """The windows of an aggregation, in milliseconds."""

    kind: str
    size_ms: int
    advance_ms: int
    grace_ms: int
    retention_ms: int

    @property
    def info(self) -> WindowInfo:
        """The windows of the result's keys."""
        return WindowInfo(self.kind, None if self.kind == "SESSION" else self.size_ms)


@dataclass(frozen=True, slots=True)
class Grouping:
    """GROUP BY: grouping expressions over the sides, and aggregates."""

    expressions: tuple[Expression, ...]
    types: tuple[SqlType, ...]
    aggregates: tuple[AggregateCall, ...]
    window: WindowPlan | None
    having: Expression | None
    """Over columns of AGGREGATES and GROUPS, as the outputs are."""


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the result. A KEY has the number of the key's part in `part`, and no expression."""

    name: str
    type: SqlType
    role: str
    expression: Expression | None
    part: int = 0


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A query that can run."""

    sides: tuple[Side, ...]
    joins: tuple[JoinPlan, ...]
    where: Expression | None
    key: tuple[Expression, ...] | None
    """The expressions of the new key, of PARTITION BY; None if the key stays. Empty: no key."""
    key_types: tuple[SqlType, ...]
    grouping: Grouping | None
    exploded: tuple[tuple[Call, SqlType], ...]
    """Calls of table functions, and the types of their rows. Outputs have columns of EXPLODED for them."""
    outputs: tuple[Output, ...]
    is_table: bool
    window: WindowInfo | None
    is_final: bool = False
    limit: int | None = None

    @property
    def keeps_key(self) -> bool:
        """Whether the groups of GROUP BY are the keys of the source, so that its records stay where they are."""
        source, grouping = self.sides[0].source, self.grouping
        own = tuple(Column(name) for name, _ in source.key)
        return (
            not self.joins and source.window is None and grouping is not None and grouping.expressions == own
        )

    @property
    def key_outputs(self) -> tuple[Output, ...]:
        """The columns of the result's key, by their part."""
        return tuple(sorted((one for one in self.outputs if one.role == KEY), key=lambda one: one.part))

    @property
    def value_outputs(self) -> tuple[Output, ...]:
        """The columns of the result's values."""
        return tuple(one for one in self.outputs if one.role == VALUE)
