"""What statements consist of.

Keeps true: names are as the catalogue has them: plain names in capitals, quoted names as they were written.
            Positions do not count when two trees are compared.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TypeVar

from felice.dataclass import dataclass
from felice.pipelines.sql.syntax.errors import Position

NOWHERE = Position(0, 0)
N = TypeVar("N", bound="Node")


class Node:
    """A part of a tree."""

    __slots__ = ("_position",)

    @property
    def position(self) -> Position:
        """Where it begins in the text; NOWHERE if it is not from a text."""
        return getattr(self, "_position", NOWHERE)


def placed(node: N, position: Position) -> N:
    """The node, which was just made, with its position."""
    object.__setattr__(node, "_position", position)
    return node


# Types


@dataclass(frozen=True, slots=True)
class TypeName(Node):
    """A type by its name, with parameters as those of DECIMAL(4, 2). The catalogue knows names of users."""

    name: str
    parameters: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ArrayType(Node):
    """ARRAY<element>."""

    element: Type


@dataclass(frozen=True, slots=True)
class MapType(Node):
    """MAP<key, value>."""

    key: Type
    value: Type


@dataclass(frozen=True, slots=True)
class StructType(Node):
    """STRUCT<name type, …>."""

    fields: tuple[tuple[str, Type], ...]


Type = TypeName | ArrayType | MapType | StructType

# Expressions


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A value: text, whole number, decimal number, double, boolean, or None for NULL."""

    value: str | int | Decimal | float | bool | None


@dataclass(frozen=True, slots=True)
class Column(Node):
    """A column, or the parameter of a lambda; `source` is the name before the point."""

    name: str
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Field(Node):
    """`of->name`: a field of a struct."""

    of: Expression
    name: str


@dataclass(frozen=True, slots=True)
class Element(Node):
    """`of[index]`: an element of an array, or the value of a map's key."""

    of: Expression
    index: Expression


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """`-`, `+` or `NOT` before an expression."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """Arithmetic, `||`, a comparison (`!=` is `<>`), IS DISTINCT FROM, AND, or OR."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class IsNull(Node):
    """IS NULL, or IS NOT NULL."""

    operand: Expression
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Between(Node):
    """`operand [NOT] BETWEEN low AND high`."""

    operand: Expression
    low: Expression
    high: Expression
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class In(Node):
    """`operand [NOT] IN (…)`."""

    operand: Expression
    choices: tuple[Expression, ...]
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Like(Node):
    """`operand [NOT] LIKE pattern [ESCAPE character]`."""

    operand: Expression
    pattern: Expression
    escape: str | None = None
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Case(Node):
    """CASE. With an operand, each `when` is compared with it; otherwise each is a condition."""

    operand: Expression | None
    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None


@dataclass(frozen=True, slots=True)
class Cast(Node):
    """`CAST(operand AS type)`."""

    operand: Expression
    type: Type


@dataclass(frozen=True, slots=True)
class ArrayOf(Node):
    """`ARRAY[…]`."""

    elements: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class MapOf(Node):
    """`MAP(key := value, …)`."""

    entries: tuple[tuple[Expression, Expression], ...]


@dataclass(frozen=True, slots=True)
class StructOf(Node):
    """`STRUCT(name := value, …)`."""

    fields: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class Lambda(Node):
    """`x => body`, or `(x, y) => body`."""

    parameters: tuple[str, ...]
    body: Expression


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A function with its arguments. `COUNT(*)` has the argument `Star()`."""

    function: str
    arguments: tuple[Expression | Lambda | Star, ...]


@dataclass(frozen=True, slots=True)
class Star(Node):
    """`*` in a list of columns, `source.*`, and `*` of COUNT(*)."""

    source: str | None = None


@dataclass(frozen=True, slots=True)
class StructStar(Node):
    """`expression->*` in a list of columns."""

    of: Expression


Expression = (
    Literal
    | Column
    | Field
    | Element
    | Unary
    | Binary
    | IsNull
    | Between
    | In
    | Like
    | Case
    | Cast
    | ArrayOf
    | MapOf
    | StructOf
    | Call
)


def left_chain(given: Binary) -> tuple[list[Binary], Expression]:
    """The operators that are inside each other at their left sides, the innermost first, and its left side.

    `a + b + c` is such a chain. A long one is deeper than Python's calls may be.
    """
    chain: list[Binary] = []
    first: Expression = given
    while isinstance(first, Binary):
        chain.append(first)
        first = first.left
    return chain[::-1], first


# Queries


@dataclass(frozen=True, slots=True)
class Selected(Node):
    """An expression of a projection, with the name that it gets."""

    expression: Expression
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Duration(Node):
    """A length of time: `5 MINUTES`."""

    count: int
    unit: str
    """In the plural: DAYS, HOURS, MINUTES, SECONDS, MILLISECONDS."""

    @property
    def ms(self) -> int:
        """In milliseconds."""
        return self.count * UNITS_MS[self.unit]


UNITS_MS = {"DAYS": 86_400_000, "HOURS": 3_600_000, "MINUTES": 60_000, "SECONDS": 1000, "MILLISECONDS": 1}


@dataclass(frozen=True, slots=True)
class Window(Node):
    """TUMBLING, HOPPING or SESSION. `size` is the gap of sessions."""

    kind: str
    size: Duration
    advance: Duration | None = None
    retention: Duration | None = None
    grace: Duration | None = None


@dataclass(frozen=True, slots=True)
class Source(Node):
    """A stream or table in FROM, with the name that the query calls it."""

    name: str
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Within(Node):
    """How far apart the records of two streams may be that are joined: before and after the left one."""

    before: Duration
    after: Duration
    grace: Duration | None = None


@dataclass(frozen=True, slots=True)
class Join(Node):
    """A source that is joined with those before it. `kind` is INNER, LEFT, RIGHT or FULL."""

    kind: str
    source: Source
    condition: Expression
    within: Within | None = None


@dataclass(frozen=True, slots=True)
class Query(Node):
    """SELECT. `emit` is CHANGES or FINAL, and None for a pull query."""

    columns: tuple[Selected | Star | StructStar, ...]
    source: Source
    joins: tuple[Join, ...] = ()
    window: Window | None = None
    where: Expression | None = None
    group_by: tuple[Expression, ...] = ()
    partition_by: tuple[Expression, ...] = ()
    having: Expression | None = None
    emit: str | None = None
    limit: int | None = None


# Statements


@dataclass(frozen=True, slots=True)
class ColumnDefinition(Node):
    """A declared column. `role` is KEY, PRIMARY KEY, HEADERS or HEADER, and None for a value. `header` is the key of
    HEADER('key').
    """

    name: str
    type: Type
    role: str | None = None
    header: str | None = None


Properties = tuple[tuple[str, Literal], ...]
"""Names, in capitals unless they were quoted, with values."""


@dataclass(frozen=True, slots=True)
class CreateSource(Node):
    """CREATE [OR REPLACE] [SOURCE] STREAM or TABLE over a topic. `columns` is None if they were left out."""

    kind: str
    name: str
    columns: tuple[ColumnDefinition, ...] | None
    properties: Properties = ()
    is_replacing: bool = False
    is_read_only: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateAsSelect(Node):
    """CREATE [OR REPLACE] STREAM or TABLE … AS SELECT."""

    kind: str
    name: str
    query: Query
    properties: Properties = ()
    is_replacing: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class InsertSelect(Node):
    """INSERT INTO … SELECT."""

    name: str
    query: Query
    properties: Properties = ()

    @property
    def query_id(self) -> str | None:
        """The id of the query that WITH gives, in capitals; None if it gives none."""
        named = next((literal.value for name, literal in self.properties if name.upper() == "QUERY_ID"), None)
        return str(named).upper() if named else None


@dataclass(frozen=True, slots=True)
class InsertValues(Node):
    """INSERT INTO … VALUES. `columns` is None if they were left out."""

    name: str
    columns: tuple[str, ...] | None
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class CreateConnector(Node):
    """CREATE SOURCE or SINK CONNECTOR."""

    kind: str
    name: str
    properties: Properties
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateType(Node):
    """CREATE TYPE."""

    name: str
    type: Type
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class Drop(Node):
    """DROP STREAM, TABLE, CONNECTOR or TYPE."""

    kind: str
    name: str
    if_exists: bool = False
    deletes_topic: bool = False


@dataclass(frozen=True, slots=True)
class AlterSource(Node):
    """ALTER STREAM or TABLE … ADD COLUMN."""

    kind: str
    name: str
    columns: tuple[tuple[str, Type], ...]


@dataclass(frozen=True, slots=True)
class Show(Node):
    """SHOW or LIST: `what` is STREAMS, TABLES, TOPICS, ALL TOPICS, QUERIES, FUNCTIONS, TYPES, VARIABLES, PROPERTIES,
    CONNECTORS, SOURCE CONNECTORS, SINK CONNECTORS or CONNECTOR PLUGINS.
    """

    what: str
    is_extended: bool = False


@dataclass(frozen=True, slots=True)
class Describe(Node):
    """DESCRIBE of a SOURCE, FUNCTION or CONNECTOR, or of all STREAMS or TABLES."""

    kind: str
    name: str | None = None
    is_extended: bool = False


@dataclass(frozen=True, slots=True)
class Explain(Node):
    """EXPLAIN of a query's id, or of a statement."""

    subject: str | Statement


@dataclass(frozen=True, slots=True)
class ControlQuery(Node):
    """TERMINATE, PAUSE or RESUME; of all queries without an id."""

    action: str
    query: str | None


@dataclass(frozen=True, slots=True)
class PrintTopic(Node):
    """PRINT."""

    topic: str
    from_beginning: bool = False
    interval: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class SetProperty(Node):
    """SET and UNSET (whose value is None), and ALTER SYSTEM."""

    name: str
    value: str | None
    is_of_system: bool = False


@dataclass(frozen=True, slots=True)
class Define(Node):
    """DEFINE and UNDEFINE (whose value is None) of a variable."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class AssertExists(Node):
    """ASSERT [NOT EXISTS] TOPIC or SCHEMA."""

    kind: str
    name: str | None
    is_negated: bool = False
    properties: Properties = ()
    schema_id: int | None = None
    timeout: Duration | None = None


@dataclass(frozen=True, slots=True)
class AssertValues(Node):
    """ASSERT VALUES, and ASSERT NULL VALUES, whose values are those of the key."""

    name: str
    columns: tuple[str, ...] | None
    values: tuple[Expression, ...]
    is_tombstone: bool = False


@dataclass(frozen=True, slots=True)
class AssertSource(Node):
    """ASSERT STREAM or TABLE."""

    declared: CreateSource


@dataclass(frozen=True, slots=True)
class RunScript(Node):
    """RUN SCRIPT."""

    path: str


Statement = (
    Query
    | CreateSource
    | CreateAsSelect
    | InsertSelect
    | InsertValues
    | CreateConnector
    | CreateType
    | Drop
    | AlterSource
    | Show
    | Describe
    | Explain
    | ControlQuery
    | PrintTopic
    | SetProperty
    | Define
    | AssertExists
    | AssertValues
    | AssertSource
    | RunScript
)
