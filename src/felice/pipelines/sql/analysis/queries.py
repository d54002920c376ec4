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
from felice.pipelines.sql.analysis.declarations import PSEUDO
from felice.pipelines.sql.analysis.joins import JoinKey, join_plans, sides_of
from felice.pipelines.sql.analysis.names import WINDOW_BOUNDS, Sides
from felice.pipelines.sql.analysis.plan import EXPLODED, GROUPS, Grouping, Output, QueryPlan
from felice.pipelines.sql.analysis.rewriting import rewritten
from felice.pipelines.sql.analysis.typing import Typing
from felice.pipelines.sql.catalogue import KEY, VALUE, Catalogue
from felice.pipelines.sql.expressions.calls import chosen, result_type
from felice.pipelines.sql.functions.table import AGGREGATE, TABLE, Function, FunctionTable, Settings
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import (
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
from felice.pipelines.sql.syntax.writer import expression_text, name_text
from felice.pipelines.sql.types import Map, SqlType, Struct, text_of

ROWKEY = "ROWKEY"


class _Item(NamedTuple):
    """A column of the projection: its name, and its canonical expression."""

    name: str
    expression: Any
    is_star: bool = False


def plan_of(
    query: Query, catalogue: Catalogue, functions: FunctionTable, settings: Settings, *, is_persistent: bool
) -> QueryPlan:
    """The plan of a query. One that is not persistent shows rows, and needs no key. Raises `SqlError`."""
    sides = Sides(sides_of(query, catalogue))
    typing = Typing(sides, functions, catalogue.types)
    return _Analysis(query, sides, typing, settings, is_persistent=is_persistent).plan()


class _Analysis:
    def __init__(
        self, query: Query, sides: Sides, typing: Typing, settings: Settings, *, is_persistent: bool
    ) -> None:
        self._query, self._sides, self._typing, self._settings = query, sides, typing, settings
        self._is_persistent = is_persistent
        self._functions = typing.functions
        self._is_table = sides.sides[0].source.is_table
        self._joins, self._join_key = join_plans(query, sides, typing)

    def plan(self) -> QueryPlan:
        """The plan. Raises `SqlError`."""
        query = self._query
        self._check_clauses()
        where = None if query.where is None else self._condition(query.where, "WHERE")
        if query.group_by:
            return self._grouped(where)
        partition = tuple(self._partitioned(one) for one in query.partition_by)
        items = self._items(partition if query.partition_by else None)
        exploded, items = self._exploded(items)
        columns = {(EXPLODED, str(number)): type_ for number, (_, _, type_) in enumerate(exploded)}
        key: tuple[Any, ...] | None = None
        if query.partition_by:
            key = tuple(one for one in partition if not isinstance(one, Literal))
            expected = JoinKey(tuple((one,) for one in key), tuple(self._typing.type_of(one) for one in key))
        else:
            expected = self._join_key
        what = "partitioning expression" if query.partition_by else "key column"
        if self._joins and not query.partition_by:
            what = "join expression"
        outputs = self._outputs(items, expected, columns, what)
        source = self._sides.sides[0].source
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
            None if query.partition_by else source.window,
            limit=query.limit,
        )

    def _check_clauses(self) -> None:
        query = self._query
        if query.window is not None and not query.group_by:
            raise SqlError("a WINDOW needs GROUP BY", query.window.position)
        if query.having is not None and not query.group_by:
            raise SqlError("HAVING needs GROUP BY", query.having.position)
        if query.window is not None and self._is_table:
            raise SqlError("a WINDOW needs a stream: tables have no windows", query.window.position)
        if query.emit == "FINAL" and query.window is None:
            raise SqlError(
                "EMIT FINAL needs a WINDOW: it sends the result of each window that has closed",
                query.position,
            )
        if query.partition_by and query.group_by:
            raise SqlError("PARTITION BY and GROUP BY exclude each other", query.partition_by[0].position)
        if query.partition_by and self._is_table:
            raise SqlError(
                "PARTITION BY needs a stream: a table's rows are placed by its primary key",
                query.partition_by[0].position,
            )
        for one in (query.where, *query.partition_by, *query.group_by):
            for kind, told in ((AGGREGATE, "aggregate"), (TABLE, "table")):
                found = None if one is None else first_of_kind(one, kind, self._functions)
                if found is not None:
                    raise SqlError(
                        f"the {told} function {found.function} cannot be used here", found.position
                    )
        if query.limit is not None and self._is_persistent:
            raise SqlError("LIMIT cannot be used in a query that runs on", query.position)

    def _condition(self, given: Expression, where: str) -> Any:
        found = self._typing.canonical(given)
        self._typing.compiler().boolean(found, where)
        return found

    def _partitioned(self, given: Expression) -> Any:
        if isinstance(given, Literal) and given.value is None:
            if len(self._query.partition_by) > 1:
                raise SqlError("PARTITION BY NULL has no further expressions", given.position)
            return given
        found = self._typing.canonical(given)
        self._check_key_type(found, "PARTITION BY")
        return found

    def _check_key_type(self, given: Expression, clause: str) -> None:
        type_ = self._typing.type_of(given)
        if isinstance(type_, Map):
            raise SqlError(
                f"{clause}: {expression_text(given)} is {text_of(type_)}, and MAP is not supported in keys",
                given.position,
            )

    # The projection

    def _items(self, partition: Sequence[Any] | None) -> list[_Item]:
        """The columns of the projection, with their names."""
        found: list[_Item] = []
        self._generated = 0
        for given in self._query.columns:
            match given:
                case Star():
                    found += self._star(given, partition)
                case StructStar(of):
                    found += self._struct_star(of)
                case Selected(expression, alias):
                    canonical = self._typing_of_aggregates(expression)
                    name = alias or self._name_of(expression, [one.name for one in found])
                    self._check_name(name, alias, given)
                    found.append(_Item(name, canonical))
        names = [one.name for one in found]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise SqlError(
                f"the projection has two columns {name_text(twice)}", self._query.columns[0].position
            )
        return found

    def _typing_of_aggregates(self, given: Expression) -> Any:
        """The canonical form. The bounds of the windows of an aggregation are no columns of a source."""
        window = self._query.window

        def change(one: Any) -> Any:
            is_bound = isinstance(one, Column) and one.source is None and one.name in WINDOW_BOUNDS
            if is_bound and not self._sides.has(one.name):
                return placed(Column(one.name, GROUPS), one.position)
            is_rowkey = isinstance(one, Column) and one.source is None and one.name == ROWKEY
            if is_rowkey and self._join_key.is_synthetic and not self._sides.has(ROWKEY):
                return placed(Column(ROWKEY, GROUPS), one.position)
            return None

        return self._typing.canonical(
            rewritten(given, change) if window or self._join_key.is_synthetic else given
        )

    def _check_name(self, name: str, alias: str | None, given: Selected) -> None:
        if name in PSEUDO and (alias is not None or self._is_persistent):
            raise SqlError(
                f"{name} is a reserved name of a system column; give the column another name with AS",
                given.position,
            )

    def _name_of(self, given: Expression, taken: Sequence[str]) -> str:
        """The name of a column without alias."""
        if isinstance(given, Column):
            if given.source is not None and self._sides.is_clashing(given.name):
                return f"{given.source}_{given.name}"
            return given.name
        if isinstance(given, Field):
            return _unique(given.name, taken)
        return self._generated_name()

    def _generated_name(self) -> str:
        while True:
            name = f"KSQL_COL_{self._generated}"
            self._generated += 1
            if not self._sides.has(name):
                return name

    def _star(self, star: Star, partition: Sequence[Any] | None) -> Iterator[_Item]:
        sides = self._sides
        several = len(sides.sides) > 1
        numbers = (
            range(len(sides.sides))
            if star.source is None
            else [sides.side_named(star.source, placed(Column("*", star.source), star.position))]
        )
        if self._join_key.is_synthetic and not self._query.group_by and partition is None:
            yield _Item(ROWKEY, Column(ROWKEY, GROUPS), is_star=True)
        found = [
            (f"{sides.sides[number].alias}_{field.name}" if several else field.name, field, number)
            for number in numbers
            for field in sides.all_of(number, with_bounds=not self._is_persistent)
        ]
        items = [_Item(name, self._column(field.name, number), is_star=True) for name, field, number in found]
        if partition is None or several:
            yield from items
            return
        yield from self._star_behind_partition(items, partition, [field.kind == KEY for _, field, _ in found])

    def _star_behind_partition(
        self, items: Sequence[_Item], partition: Sequence[Any], are_keys: Sequence[bool]
    ) -> Iterator[_Item]:
        """The new key, the values, and then what was the key."""
        for one in partition:
            known = next((item for item in items if item.expression == one), None)
            if not isinstance(one, Literal):
                yield known or _Item(self._name_of(one, [item.name for item in items]), one, is_star=True)
        for wanted in (False, True):
            for item, is_key in zip(items, are_keys, strict=True):
                if is_key == wanted and item.expression not in partition:
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

    def _exploded(
        self, items: Sequence[_Item]
    ) -> tuple[list[tuple[Function, tuple[Any, ...], SqlType]], list[_Item]]:
        """The table functions of the projection, and the columns with others in their place."""
        found: list[tuple[Function, tuple[Any, ...], SqlType]] = []

        def change(one: Any) -> Any:
            if not is_of_kind(one, TABLE, self._functions):
                return None
            for argument in one.arguments:
                if (inner := first_of_kind(argument, TABLE, self._functions)) is not None:
                    raise SqlError(f"{inner.function} cannot be inside {one.function}", inner.position)
            if self._is_table:
                raise SqlError(f"the table function {one.function} needs a stream", one.position)
            codes = [self._typing.compiler().code(argument) for argument in one.arguments]
            function, bound = chosen(
                self._functions, one.function, [code.type for code in codes], one.position
            )
            type_ = result_type(function, bound, [code.type for code in codes], codes)
            found.append((function, tuple(one.arguments), type_))
            return placed(Column(str(len(found) - 1), EXPLODED), one.position)

        made = [item._replace(expression=rewritten(item.expression, change)) for item in items]
        for item in made:
            if (inner := first_of_kind(item.expression, AGGREGATE, self._functions)) is not None:
                if found:
                    raise SqlError("table functions cannot be used with aggregations", inner.position)
                raise SqlError(f"the aggregate function {inner.function} needs GROUP BY", inner.position)
        return found, made

    def _outputs(
        self, items: Sequence[_Item], key: JoinKey, columns: dict[tuple[str, str], SqlType], what: str
    ) -> tuple[Output, ...]:
        """The columns of the result: those of its key, and those of its values."""
        if key.is_synthetic:
            columns = columns | {(GROUPS, ROWKEY): key.types[0]}
            key = JoinKey(((Column(ROWKEY, GROUPS),),), key.types)
        if not self._is_persistent:
            return tuple(self._value(one, columns) for one in items)
        parts: dict[int, int] = {}
        for part, names in enumerate(key.expressions):
            place = self._key_place(items, names, what)
            parts[place] = part
        outputs = [
            Output(one.name, key.types[parts[place]], KEY, None, parts[place])
            if place in parts
            else self._value(one, columns)
            for place, one in enumerate(items)
        ]
        if all(one.role == KEY for one in outputs):
            raise SqlError("the projection contains no value columns", self._query.columns[0].position)
        return tuple(outputs)

    def _key_place(self, items: Sequence[_Item], names: Sequence[Any], what: str) -> int:
        """Which column of the projection is a part of the key."""
        for name in names:
            places = [place for place, one in enumerate(items) if one.expression == name]
            if len(places) > 1:
                told = " and ".join(name_text(items[place].name) for place in places)
                key = expression_text(name)
                raise SqlError(
                    f"the projection has the key {key} more than once: {told}; use AS_VALUE for copies",
                    self._query.columns[0].position,
                )
            if places:
                return places[0]
        told = " or ".join(self._told(one) for one in names) or ROWKEY
        raise SqlError(
            f"the key is missing from the projection: it must include the {what} {told}",
            self._query.columns[0].position,
        )

    def _told(self, given: Any) -> str:
        return ROWKEY if isinstance(given, Column) and given.source == GROUPS else expression_text(given)

    def _value(self, item: _Item, columns: dict[tuple[str, str], SqlType]) -> Output:
        return Output(item.name, self._typing.type_of(item.expression, columns), VALUE, item.expression)

    # GROUP BY

    def _grouped(self, where: Any) -> QueryPlan:
        query, typing = self._query, self._typing
        groups = tuple(typing.canonical(one) for one in query.group_by)
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
                raise SqlError(
                    f"the table function {inner.function} cannot be used with aggregations", inner.position
                )
        items = [item._replace(expression=aggregation.rewritten(item.expression, "SELECT")) for item in given]
        having = None
        if query.having is not None:
            having = aggregation.rewritten(self._typing_of_aggregates(query.having), "HAVING")
            typing.compiler(aggregation.columns).boolean(having, "HAVING")
        if not aggregation.aggregates:
            raise SqlError(
                "GROUP BY needs an aggregate function in SELECT or HAVING", query.group_by[0].position
            )
        types = tuple(aggregation.group_types)
        key = JoinKey(tuple((Column(str(part), GROUPS),) for part in range(len(groups))), types)
        outputs = self._grouped_outputs(items, key, groups, aggregation)
        grouping = Grouping(groups, types, tuple(aggregation.aggregates), window, having)
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

    def _grouped_outputs(
        self, items: Sequence[_Item], key: JoinKey, groups: Sequence[Any], aggregation: Aggregation
    ) -> tuple[Output, ...]:
        if self._is_persistent:
            for part, group in enumerate(groups):
                if not any(one.expression == Column(str(part), GROUPS) for one in items):
                    raise SqlError(
                        "the key is missing from the projection: it must include the grouping expression "
                        f"{expression_text(group)}",
                        self._query.columns[0].position,
                    )
        return self._outputs(items, key, aggregation.columns, "grouping expression")


def _unique(name: str, taken: Sequence[str]) -> str:
    number, found = 0, name
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found
