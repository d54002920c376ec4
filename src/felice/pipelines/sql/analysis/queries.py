"""A query to its plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from felice.pipelines.sql.analysis.aggregation import (
    Aggregation,
    first_of_kind,
    is_of_kind,
    window_plan,
)
from felice.pipelines.sql.analysis.aliases import Aliases
from felice.pipelines.sql.analysis.clauses import check_clauses, with_groups, with_times
from felice.pipelines.sql.analysis.declarations import PSEUDO
from felice.pipelines.sql.analysis.join_checks import NOT_REPARTITIONED
from felice.pipelines.sql.analysis.joins import ROWKEY, JoinKey, join_plans, sides_of, synthetic_name
from felice.pipelines.sql.analysis.keys import key_places, missing, missing_primary_key
from felice.pipelines.sql.analysis.names import WINDOW_BOUNDS, Sides, check_bounds
from felice.pipelines.sql.analysis.plan import EXPLODED, FOREIGN_KEY, GROUPS, Grouping, Output, QueryPlan
from felice.pipelines.sql.analysis.rewriting import rewritten
from felice.pipelines.sql.analysis.typing import Typing
from felice.pipelines.sql.catalogue import KEY, STREAM, VALUE, Catalogue
from felice.pipelines.sql.catalogue import TABLE as TABLE_SOURCE
from felice.pipelines.sql.functions.table import TABLE, FunctionTable, Settings
from felice.pipelines.sql.syntax.errors import Position, SqlError
from felice.pipelines.sql.syntax.tree import (
    Call,
    Column,
    Expression,
    Field,
    Literal,
    Query,
    Selected,
    Star,
    StructStar,
    placed,
)
from felice.pipelines.sql.syntax.writer import expression_text
from felice.pipelines.sql.types import Map, SqlType, Struct, first_repeated, text_of


class _Item(NamedTuple):
    """A column of the projection: its name, and its canonical expression."""

    name: str
    expression: Any
    is_key: bool = False


class Target(NamedTuple):
    """What a query writes. Its kind is STREAM or TABLE if the statement makes it."""

    name: str
    kind: str | None = None
    position: Position | None = None


def plan_of(
    query: Query,
    catalogue: Catalogue,
    functions: FunctionTable,
    settings: Settings,
    *,
    target: Target | None,
) -> QueryPlan:
    """The plan of a query, and what it writes. A query that only shows rows has no target, and needs no key. Raises
    `SqlError`.
    """
    sides = Sides(sides_of(query, catalogue))
    typing = Typing(sides, functions, catalogue.types)
    query = with_groups(query, functions, is_persistent=target is not None)
    is_table = sides.sides[0].source.is_table
    check_clauses(query, sides, functions, is_table=is_table, is_persistent=target is not None)
    return _Analysis(query, sides, typing, settings, target).plan()


class _Analysis:
    def __init__(
        self, query: Query, sides: Sides, typing: Typing, settings: Settings, target: Target | None
    ) -> None:
        self._query, self._sides, self._typing, self._settings = query, sides, typing, settings
        self._target, self._is_persistent = target, target is not None
        self._functions = typing.functions
        self._is_table = sides.sides[0].source.is_table
        self._joins, self._join_key = join_plans(query, sides, typing)
        self._rowkey = synthetic_name(sides) if self._join_key.is_synthetic and not query.group_by else None
        """The name of the key of joined rows, if no column has its value."""
        self._columns: dict[tuple[str, str], SqlType] = {}
        """The types of columns that stand for other expressions."""
        if self._rowkey is not None:
            self._columns[GROUPS, ROWKEY] = self._join_key.types[0]

    def plan(self) -> QueryPlan:
        """The plan. Raises `SqlError`."""
        query = self._query
        where = None if query.where is None else self._condition(query.where, "WHERE")
        if query.group_by:
            return self._grouped(where)
        partition = self._partition()
        items = self._items(partition or None)
        exploded, items = self._exploded(items)
        for number, (_, type_) in enumerate(exploded):
            self._columns[EXPLODED, str(number)] = type_
        source = self._sides.sides[0].source
        key: tuple[Any, ...] | None = None
        if partition:
            parts = tuple(one for one in partition if one != Literal(None))
            expected = JoinKey(tuple((one,) for one in parts), tuple(self._type_of(one) for one in parts))
            key = None if self._is_key(parts, items) else parts
            if key is not None and source.window is not None:
                raise SqlError(
                    f"{NOT_REPARTITIONED} PARTITION BY must be their key",
                    query.partition_by[0].position,
                )
        else:
            expected = self._join_key
        what = "key column"
        if partition or self._joins:
            what = "partitioning expression" if partition else "join expression"
        outputs = self._outputs(items, expected, what)
        return QueryPlan(
            self._sides.sides,
            self._joins,
            where,
            key,
            expected.types,
            None,
            tuple(exploded),
            outputs,
            self._is_table,
            source.window,
            limit=query.limit,
        )

    def _condition(self, given: Expression, where: str) -> Any:
        if self._query.window is not None:
            check_bounds(given)
        found = with_times(self._canonical(given))
        self._typing.compiler(self._columns).boolean(found, where)
        return found

    def _canonical(self, given: Expression) -> Any:
        """The canonical form, in which the key that no column has stands for itself."""

        def change(one: Any) -> Any:
            is_rowkey = isinstance(one, Column) and one.source is None and one.name == self._rowkey
            return placed(Column(ROWKEY, GROUPS), one.position) if is_rowkey else None

        return self._typing.canonical(given if self._rowkey is None else rewritten(given, change))

    def _type_of(self, given: Expression) -> SqlType:
        return self._typing.type_of(given, self._columns)

    def _partition(self) -> tuple[Any, ...]:
        """The expressions of PARTITION BY; none if it changes nothing."""
        found = tuple(self._partitioned(one) for one in self._query.partition_by)
        _check_repeated("PARTITION BY", self._query.partition_by, found)
        own = self._sides.sides[0].source.key
        if not (found and self._is_table):
            return found
        if not self._joins and found == tuple(Column(name) for name, _ in own):
            return ()
        raise SqlError(
            "Cannot repartition a TABLE source. If this is a join, make sure that the criteria uses the TABLE's key "
            f"column {', '.join(name for name, _ in own)} instead of [{', '.join(map(expression_text, found))}]. "
            "PARTITION BY needs a stream",
            found[0].position,
        )

    def _partitioned(self, given: Expression) -> Any:
        if isinstance(given, Literal) and given.value is None:
            if len(self._query.partition_by) > 1:
                raise SqlError("Cannot PARTITION BY multiple columns including NULL", given.position)
            return given
        try:
            found = self._canonical(given)
        except SqlError as error:
            if "cannot be resolved" not in error.reason:
                raise
            raise SqlError(
                f"{error.reason}; it must be a column in the source schema since PARTITION BY is applied on the input",
                given.position,
            ) from None
        self._check_key_type(found, "PARTITION BY")
        return found

    def _is_key(self, parts: Sequence[Any], items: Sequence[_Item]) -> bool:
        """Whether rows are partitioned by these expressions already. The key of joined rows is known by one name: the
        first that the projection has.
        """
        if self._join_key.is_synthetic:
            return self._rowkey is not None and list(parts) == [Column(ROWKEY, GROUPS)]
        selected = [one.expression for one in items]
        names = self._join_key.expressions
        own = [next((one for one in known if one in selected), known[0]) for known in names]
        return bool(own) and list(parts) == own

    def _check_key_type(self, given: Expression, clause: str) -> None:
        type_ = self._type_of(given)
        # The format of a sink refuses it, too, and knows its name.
        if isinstance(type_, Map) and not self._is_persistent:
            raise SqlError(
                f"{clause}: {expression_text(given)} is {text_of(type_)}, and MAP is not supported in keys",
                given.position,
            )

    # The projection

    def _items(self, partition: Sequence[Any] | None) -> list[_Item]:
        """The columns of the projection, with their names."""
        found: list[_Item] = []
        aliases = Aliases(self._sides.names())
        for given in self._query.columns:
            match given:
                case Star():
                    found += self._star(given, partition)
                case StructStar(of):
                    found += self._struct_star(of)
                case Selected(expression, alias):
                    canonical = self._typing_of_aggregates(expression)
                    name = alias or self._name_of(expression, aliases)
                    self._check_name(name, alias, given)
                    found.append(_Item(name, canonical))
        names = [one.name for one in found]
        if twice := first_repeated(names):
            raise SqlError(
                f"Duplicate columns found in schema: the projection has two columns `{twice}`; name one with AS",
                self._query.columns[0].position,
            )
        return found

    def _typing_of_aggregates(self, given: Expression) -> Any:
        """The canonical form. The bounds of the windows of an aggregation are no columns of a source."""
        window = self._query.window

        def change(one: Any) -> Any:
            is_bound = isinstance(one, Column) and one.source is None and one.name in WINDOW_BOUNDS
            if is_bound and not self._sides.has(one.name):
                return placed(Column(one.name, GROUPS), one.position)
            return None

        return self._canonical(rewritten(given, change) if window else given)

    def _check_name(self, name: str, alias: str | None, given: Selected) -> None:
        if name in PSEUDO and (alias is not None or self._is_persistent):
            if alias is not None and given.expression != Column(name):
                raise SqlError(
                    f"`{name}` is a reserved column name. You cannot use it as an alias for a column",
                    given.position,
                )
            raise SqlError(
                f"Reserved column name in select: `{name}`. Please remove or alias the column", given.position
            )

    def _name_of(self, given: Expression, aliases: Aliases) -> str:
        """The name of a column without alias."""
        if isinstance(given, Column):
            if given.source is not None and self._sides.is_clashing(given.name):
                return f"{given.source}_{given.name}"
            return given.name
        if isinstance(given, Field):
            return aliases.of_field(given.name)
        return aliases.of_expression()

    def _star(self, star: Star, partition: Sequence[Any] | None) -> Iterator[_Item]:
        sides = self._sides
        several = len(sides.sides) > 1
        numbers = (
            range(len(sides.sides))
            if star.source is None
            else [sides.side_named(star.source, placed(Column("*", star.source), star.position))]
        )
        has_rowkey = self._rowkey is not None and star.source is None
        rowkey = [_Item(self._rowkey or ROWKEY, Column(ROWKEY, GROUPS))] if has_rowkey else []
        # A joined row has the bounds of windows, and a partitioned one all that it was made of, under names of its own.
        is_whole = several and partition is not None
        found = [
            (f"{sides.sides[number].alias}_{field.name}" if several else field.name, field, number)
            for number in numbers
            for field in sides.all_of(
                number, with_bounds=several or not self._is_persistent, is_whole=is_whole
            )
        ]
        items = [
            _Item(name, self._column(field.name, number), field.kind == KEY and not several)
            for name, field, number in found
        ]
        if partition is None:
            yield from (*rowkey, *items)
            return
        yield from self._star_behind_partition([*items, *rowkey], partition)

    def _star_behind_partition(self, items: Sequence[_Item], partition: Sequence[Any]) -> Iterator[_Item]:
        """The new key, the values, and then what was the key."""
        aliases = Aliases(item.name for item in items)
        for one in partition:
            known = next((item for item in items if item.expression == one), None)
            if one != Literal(None):
                yield known or _Item(self._name_of(one, aliases), one)
        for wanted in (False, True):
            for item in items:
                if item.is_key == wanted and item.expression not in partition:
                    yield item

    def _column(self, name: str, number: int) -> Column:
        sides = self._sides.sides
        return Column(name, sides[number].alias if len(sides) > 1 else None)

    def _struct_star(self, of: Expression) -> Iterator[_Item]:
        canonical = self._typing.canonical(of)
        type_ = self._typing.type_of(canonical)
        if not isinstance(type_, Struct):
            raise SqlError(
                f"{expression_text(of)}->*: expected a STRUCT, and got {text_of(type_)}", of.position
            )
        for name, _ in type_.fields:
            yield _Item(name, Field(canonical, name))

    def _exploded(self, items: Sequence[_Item]) -> tuple[list[tuple[Call, SqlType]], list[_Item]]:
        """The table functions of the projection, and the columns with others in their place."""
        found: list[tuple[Call, SqlType]] = []

        def change(one: Any) -> Any:
            if not is_of_kind(one, TABLE, self._functions):
                return None
            if self._is_table:
                raise SqlError(
                    f"Table source is not supported with table functions: {one.function} needs a stream",
                    one.position,
                )
            type_ = self._typing.compiler().rows(one).type
            assert type_ is not None, "the rows of a table function have a type"
            found.append((one, type_))
            return placed(Column(str(len(found) - 1), EXPLODED), one.position)

        return found, [item._replace(expression=rewritten(item.expression, change)) for item in items]

    def _outputs(self, items: Sequence[_Item], key: JoinKey, what: str) -> tuple[Output, ...]:
        """The columns of the result: those of its key, and those of its values."""
        if key.is_synthetic:
            key = JoinKey(((Column(ROWKEY, GROUPS),),), key.types)
        if not self._is_persistent:
            return tuple(self._value(one) for one in items)
        self._check_kind()
        position = self._query.columns[0].position
        columns = [(one.name, one.expression) for one in items]
        places = key_places(columns, key, position, is_grouped=bool(self._query.group_by))
        if None in places:
            raise SqlError(self._missing(key, places, what), position)
        parts = {place: part for part, place in enumerate(places)}
        outputs = [
            Output(one.name, key.types[parts[place]], KEY, None, parts[place])
            if place in parts
            else self._value(one)
            for place, one in enumerate(items)
        ]
        if all(one.role == KEY for one in outputs):
            raise SqlError("The projection contains no value columns", position)
        return tuple(outputs)

    def _check_kind(self) -> None:
        """Raise `SqlError` if the statement makes a stream of a table, or the other way round."""
        target, query = self._target, self._query
        kind = TABLE_SOURCE if self._is_table or query.group_by else STREAM
        if target is not None and target.kind not in (None, kind):
            raise SqlError(
                f"Invalid result type. Your SELECT query produces a {kind}. Please use CREATE {kind} AS SELECT "
                "statement instead.",
                target.position,
            )

    def _missing(self, key: JoinKey, places: Sequence[int | None], what: str) -> str:
        assert self._target is not None, "only results that are kept need a key"
        target = self._target.name
        if self._query.group_by:
            groups = zip(self._query.group_by, places, strict=True)
            return missing(target, what, [one for one, place in groups if place is None])
        if self._query.partition_by or not self._joins:
            return missing(target, what, [names[0] for names in key.expressions])
        if self._joins[-1].how == FOREIGN_KEY:
            first = self._sides.sides[0]
            names = [name for (name, _), place in zip(first.source.key, places, strict=True) if place is None]
            return missing_primary_key(first.alias, names)
        if self._rowkey is None:
            return missing(target, what, key.expressions[0], is_any=True)
        return (
            f"{missing(target, what, [self._rowkey], is_any=True)} {self._rowkey} was added as a synthetic key "
            "column because the join criteria did not match any source column. It may have another name: "
            f"{self._rowkey} AS …"
        )

    def _value(self, item: _Item) -> Output:
        return Output(item.name, self._type_of(item.expression), VALUE, item.expression)

    # GROUP BY

    def _grouped(self, where: Any) -> QueryPlan:
        query, typing = self._query, self._typing
        if query.window is not None:
            check_bounds((query.group_by, query.having))
        groups = tuple(typing.canonical(one) for one in query.group_by)
        _check_repeated("GROUP BY", query.group_by, groups)
        for one in groups:
            self._check_key_type(one, "GROUP BY")
        is_final = query.emit == "FINAL"
        window = None if query.window is None else window_plan(query.window, is_final=is_final)
        aggregation = Aggregation(
            typing, groups, self._settings, has_window=window is not None, is_of_table=self._is_table
        )
        given = self._items(None)
        for item in given:
            if (inner := first_of_kind(item.expression, TABLE, self._functions)) is not None:
                raise SqlError("Table functions cannot be used with aggregations", inner.position)
        items = [item._replace(expression=aggregation.rewritten(item.expression, "SELECT")) for item in given]
        having = None
        if query.having is not None:
            having = with_times(self._typing_of_aggregates(query.having))
            having = aggregation.rewritten(having, "HAVING")
        aggregation.check(query.position)
        if having is not None:
            typing.compiler(aggregation.columns).boolean(having, "HAVING")
        types = tuple(aggregation.group_types)
        key = JoinKey(tuple((Column(str(part), GROUPS),) for part in range(len(groups))), types)
        self._columns |= aggregation.columns
        outputs = self._outputs(items, key, "grouping expression")
        # A stream that is grouped by its key is grouped by what the key is, also where the column is null.
        by_key = bool(self._joins) and not self._is_table and self._is_key(groups, given)
        expressions = (Column(ROWKEY, GROUPS),) if by_key else groups
        grouping = Grouping(expressions, types, tuple(aggregation.aggregates), window, having)
        return QueryPlan(
            self._sides.sides,
            self._joins,
            where,
            None,
            types,
            grouping,
            (),
            outputs,
            True,
            None if window is None else window.info,
            is_final,
            query.limit,
        )


def _check_repeated(clause: str, given: Sequence[Expression], canonical: Sequence[Any]) -> None:
    """Raise `SqlError` for an expression that comes twice in a clause."""
    for place, one in enumerate(canonical):
        if one in canonical[:place]:
            raise SqlError(
                f"Duplicate {clause} expression: {expression_text(given[place])}", given[place].position
            )
