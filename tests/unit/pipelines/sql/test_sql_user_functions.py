"""Functions that users write in Python."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.functions.table import AGGREGATE, AggregateError, Function, FunctionTable
from felice.pipelines.sql.offline.cases import result_of
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.types import (
    BIGINT,
    DOUBLE,
    INTEGER,
    STRING,
    Array,
    Map,
    SqlType,
    Struct,
)
from felice.pipelines.sql.user_functions import (
    ENTRY_POINTS,
    Udaf,
    UserFunctionError,
    load_directory,
    load_entry_points,
    registered,
    udaf,
    udf,
    udtf,
)
from sql_values import value_of

PERSON = Struct((("NAME", STRING), ("TAGS", Array(Struct((("N", INTEGER),))))))


def only(table: FunctionTable) -> Function:
    (function,) = table
    return function


def test_a_function_with_a_signature() -> None:
    table = FunctionTable()

    @udf("INITIALS(name STRING, between STRING) -> STRING", description="Letters.", author="me", table=table)
    def initials(name: str, between: str) -> str:
        return between.join(word[0] for word in name.split())

    assert value_of("INITIALS('ada king', '.')", table) == (STRING, "a.k")
    assert value_of("INITIALS('ada king', CAST(NULL AS STRING))", table) == (STRING, None)
    assert (only(table).description, only(table).author) == ("Letters.", "me")
    assert initials("a b", "-") == "a-b", "the Python stays as it was"


def test_a_function_with_annotations() -> None:
    table = FunctionTable()

    @udf(table=table)
    def total(first: int, second: float | None, *others: list[int]) -> dict[str, float]:
        """The sum of
        all.

        More.
        """
        return {"sum": first + (second or 0) + sum(map(sum, others))}

    signature = "total(first BIGINT, second DOUBLE, others ARRAY<BIGINT> MANY) -> MAP<STRING, DOUBLE>"
    assert only(table).signature.text == signature
    assert only(table).description == "The sum of all."
    assert value_of("TOTAL(1, NULL, ARRAY[2], ARRAY[3, 4])", table) == (Map(STRING, DOUBLE), {"sum": 10.0})
    assert value_of("TOTAL(CAST(NULL AS INT), 2)", table)[1] is None
    assert value_of("TOTAL(1, 2, CAST(NULL AS ARRAY<INT>))", table)[1] is None


def test_letters_stand_for_the_types_of_a_call() -> None:
    table = FunctionTable()

    @udf("LAST_OF(values ARRAY<T>, other T) -> T", table=table)
    def last_of(values: list[Any], other: Any) -> Any:
        return values[-1] if values else other

    assert value_of("LAST_OF(ARRAY[1, 2], 3)", table) == (INTEGER, 2)
    assert value_of("LAST_OF(ARRAY['a'], 'b')", table) == (STRING, "a")
    assert value_of("LAST_OF(ARRAY[STRUCT(A := 1)], STRUCT(A := 2))", table)[1] == (1,)


def test_structs_are_dicts_and_may_be_changed() -> None:
    table, given = FunctionTable(), ("ada", [(1,), None])

    @udf(
        "TAGGED(p STRUCT<NAME STRING, TAGS ARRAY<STRUCT<N INT>>>) -> STRUCT<NAME STRING, TAGS ARRAY<STRUCT<N INT>>>",
        table=table,
    )
    def tagged(person: dict[str, Any]) -> dict[str, Any]:
        assert person == {"NAME": "ada", "TAGS": [{"N": 1}, None]}
        person["TAGS"].append({"N": 2})
        return person

    assert value_of("TAGGED(P)", table, P=(PERSON, given)) == (PERSON, ("ada", [(1,), None, (2,)]))
    assert given == ("ada", [(1,), None])


def line_of(text: str) -> str:
    """The place of the only line of this file that ends with a text."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if line.endswith(text))
    return f"{__file__}, line {number}"


def raise_it() -> None:
    [].pop()  # where it raises


def test_errors_name_function_file_and_line() -> None:
    table = FunctionTable()

    @udf("FAILS(a STRING) -> STRING", table=table)
    def fails(a: str) -> str:
        raise_it()
        return a

    @udf("LIBRARY(a STRING) -> STRING", table=table)
    def library(a: str) -> str:
        copy.deepcopy(sys)  # where the library raises
        return a

    @udf("WRONG(a STRING) -> INTEGER", table=table)  # where it begins
    def wrong(a: str) -> str:
        return a

    for call, reason in (
        ("FAILS('a')", f"FAILS: IndexError: pop from empty list ({line_of('# where it ' + 'raises')})"),
        ("LIBRARY('a')", line_of("# where the library " + "raises")),
        (
            "WRONG('a')",
            f"WRONG: wrong value returned: expected INTEGER, and got 'a' ({line_of('# where it ' + 'begins')})",
        ),
    ):
        with pytest.raises(UserFunctionError) as raised:
            value_of(call, table)
        assert reason in str(raised.value)


def rows_of(table: FunctionTable, *types: SqlType) -> Callable[..., Any]:
    return only(table).implementation(*types)  # type: ignore[no-any-return]


def test_table_functions() -> None:
    table, other = FunctionTable(), FunctionTable()

    @udtf(table=table)
    def letters(text: str) -> list[str]:
        return list(text)

    @udtf("COUNTED(count INTEGER) -> STRUCT<N INTEGER>", takes_nulls=True, table=other)
    def counted(count: int | None) -> Iterator[dict[str, int]]:
        for number in range(count or 1):
            yield {"N": number if number < 3 else 1 // 0}  # a row that fails

    assert only(table).signature.text == "letters(text STRING) -> STRING"
    assert rows_of(table, STRING)("ab") == ["a", "b"]
    assert rows_of(table, STRING)(None) == []
    assert rows_of(other, INTEGER)(2) == [(0,), (1,)]
    assert rows_of(other, INTEGER)(None) == [(0,)]
    with pytest.raises(UserFunctionError, match="ZeroDivisionError") as raised:
        rows_of(other, INTEGER)(4)
    assert line_of("# a row that " + "fails") in str(raised.value)


def test_arguments_of_table_functions_are_converted() -> None:
    """A column of a narrower type becomes what the function takes, as for scalar functions."""
    table = built_in().copy()

    @udtf(table=table)
    def halves(number: float) -> list[float]:
        assert isinstance(number, float)
        return [number / 2, number / 2]

    case = {
        "name": "arguments that are converted",
        "statements": [
            "CREATE STREAM s (k STRING KEY, v INT, d DECIMAL(4, 1)) WITH (kafka_topic='s', value_format='JSON');",
            "CREATE STREAM r AS SELECT k, HALVES(v) AS a, HALVES(d) AS b FROM s;",
        ],
        "inputs": [{"topic": "s", "key": "x", "value": {"V": 3, "D": 2.5}}],
        "outputs": [{"topic": "R", "key": "x", "value": {"A": 1.5, "B": 1.25}}] * 2,
    }
    found = result_of(case, table)
    assert found["passed"], found


def test_a_table_function_that_returns_no_list() -> None:
    table = FunctionTable()
    udtf("T(a STRING) -> STRING", table=table)(lambda a: a)
    with pytest.raises(
        UserFunctionError, match="T: wrong value returned: expected a list of STRING, and got 'abc'"
    ):
        rows_of(table, STRING)("abc")


class Joined(Udaf):
    """All texts."""

    def __init__(self, between: str) -> None:
        if not between:
            raise ValueError("an empty text")
        self.between = between

    def initial(self) -> Any:
        return {"PARTS": []}

    def add(self, state: Any, text: Any, n: Any) -> Any:
        state["PARTS"].append(text * n)
        return state

    def merge(self, one: Any, other: Any) -> Any:
        return {"PARTS": one["PARTS"] + other["PARTS"]}

    def result(self, state: Any) -> str:
        return self.between.join(state["PARTS"])


class Undone(Joined):
    """One with undo."""

    def undo(self, state: Any, text: Any, n: Any) -> Any:
        state["PARTS"].remove(text * n)
        return state


SIGNATURE = "JOINED(text STRING, between STRING CONSTANT, n INTEGER) -> STRING"


def aggregate_of(cls: type[Udaf], constants: tuple[Any, ...], *types: SqlType, **given: Any) -> Any:
    table = FunctionTable()
    udaf(table=table, **given)(cls)
    assert only(table).kind == AGGREGATE
    return only(table).implementation(types, constants, {})


def test_aggregate_functions() -> None:
    one = aggregate_of(
        Undone, ("-",), STRING, STRING, INTEGER, signature=SIGNATURE, state="STRUCT<PARTS ARRAY<STRING>>"
    )
    assert one.state_type == Struct((("PARTS", Array(STRING)),))
    state = one.add(one.initial(), "a", 2)
    assert one.add(state, None, 1) is state
    assert one.add(state, "b", 1) == (["aa", "b"],)
    assert state == (["aa"],), "states are not changed"
    assert one.result(one.merge(state, state)) == "aa-aa"
    assert one.undo(state, "a", 2) == ([],) and one.undo(state, "a", None) is state
    assert not hasattr(
        aggregate_of(
            Joined, ("-",), STRING, STRING, INTEGER, signature=SIGNATURE, state="STRUCT<PARTS ARRAY<STRING>>"
        ),
        "undo",
    )


def test_errors_of_aggregate_functions_stop_the_query() -> None:
    state = "STRUCT<PARTS ARRAY<STRING>>"
    one = aggregate_of(Joined, ("-",), STRING, STRING, INTEGER, signature=SIGNATURE, state=state)
    with pytest.raises(AggregateError, match=r"JOINED: TypeError: .*test_sql_user_functions.py, line \d+"):
        one.result(([None, "a"],))
    wrong = aggregate_of(Joined, ("-",), STRING, STRING, INTEGER, signature=SIGNATURE)
    with pytest.raises(
        AggregateError, match="JOINED: wrong value returned: expected STRING, and got {'PARTS'"
    ):
        wrong.initial()
    with pytest.raises(SqlError, match="JOINED: ValueError: an empty text"):
        aggregate_of(Joined, ("",), STRING, STRING, INTEGER, signature=SIGNATURE, state=state)


class Longest(Udaf):
    """With annotations."""

    def initial(self) -> str:
        return ""

    def add(self, state: str, value: str, least: int | None) -> str:
        return max(state, value, key=len) if len(value) >= (least or 0) else state

    def merge(self, one: str, other: str) -> str:
        return max(one, other, key=len)

    def result(self, state: str) -> int:
        return len(state)


def test_an_aggregate_function_with_annotations() -> None:
    one = aggregate_of(Longest, (), STRING, BIGINT)
    assert one.state_type == STRING
    assert one.result(one.add(one.add(one.add("a", "abc", None), "abcde", 9), None, 1)) == 3


def nothing(a):  # type: ignore[no-untyped-def]
    return a


def vague(a: int | str) -> int:
    return int(a)


def complex_one(a: complex) -> int:
    return int(a.real)


def one_row(a: str) -> str:
    return a


@pytest.mark.parametrize(
    ("decorator", "function", "reason"),
    [
        (udf("F(a STRING"), one_row, r"the signature 'F\(a STRING': .*expected '\)'"),
        (
            udf("F(a STRING, b STRING) -> STRING"),
            one_row,
            "one_row does not take these arguments: too many positional",
        ),
        (
            udf("F(a DECIMAL) -> DECIMAL"),
            one_row,
            r"the type of the result must be known, such as DECIMAL\(10, 2\)",
        ),
        (udf("F(a ANY) -> ARRAY<ANY>"), one_row, "the type of the result must be known"),
        (udf("F(a (T) => T) -> T"), one_row, "users' functions do not take lambdas"),
        (udf(), nothing, "nothing: the parameter a of nothing has no annotation"),
        (udf(), vague, "which has several types"),
        (udf(), complex_one, "no SQL type for the annotation <class 'complex'>: expected bool, int, float"),
        (udtf(), one_row, "one_row: a table function returns a list, and not STRING"),
        (
            udaf("F(a STRING) -> STRING"),
            Joined,
            "Joined does not take these arguments: missing a required argument",
        ),
        (udaf("F(a STRING) -> STRING"), Longest, r"Longest\.add does not take these arguments"),
        (udaf(), Udaf, r"Udaf: there is no SQL type for the annotation typing\.Any"),
    ],
)
def test_refusals(decorator: Callable[[Any], Any], function: Any, reason: str) -> None:
    with pytest.raises(UserFunctionError, match=reason):
        decorator(function)


def test_functions_of_imported_modules() -> None:
    udf("REGISTERED(a STRING) -> STRING")(one_row)
    udaf()(Longest)
    assert registered(__name__).names() == ["LONGEST", "REGISTERED"]
    assert registered(__name__[:-1], "json").names() == []


def test_a_function_that_is_there_already_is_refused() -> None:
    table = FunctionTable()
    udf("F(a STRING) -> STRING", table=table)(one_row)
    with pytest.raises(
        UserFunctionError, match=r"F\(b STRING\) -> INT: there is F\(a STRING\) -> STRING already"
    ):
        udf("F(b STRING) -> INT", table=table)(one_row)
    with pytest.raises(UserFunctionError, match="F is a function of another kind already"):
        udtf("F(b INT) -> INT", table=table)(one_row)


FUTURE = "from __future__ import annotations"
FILE = f"""
{FUTURE}
import dataclasses
from felice.pipelines.sql.user_functions import udf, udtf

@dataclasses.dataclass
class Suffix:
    text: str = "!"

@udf()
def loud(text: str) -> str:
    return text.upper() + Suffix().text

for letter in "xy":
    udf("IS_" + letter.upper() + "(text STRING) -> BOOLEAN")(lambda text, letter=letter: text == letter)
"""


def test_a_directory_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text(FILE)
    (tmp_path / "second.py").write_text(FILE.replace("loud", "louder").replace('"xy"', '"z"'))
    (tmp_path / "notes.txt").write_text("no Python")
    for _ in range(2):
        table = load_directory(tmp_path)
        assert table.names() == ["IS_X", "IS_Y", "IS_Z", "LOUD", "LOUDER"]
    assert value_of("LOUD('a')", table)[1] == "A!"
    assert value_of("IS_X('y')", table)[1] is False
    assert not [name for name in sys.modules if name.startswith("felice_sql_functions")]


def test_loaded_functions_travel_to_processes_without_the_file(tmp_path: Path) -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    (tmp_path / "first.py").write_text(FILE)
    sent = cloudpickle.dumps(only_named(load_directory(tmp_path), "LOUD").implementation)
    (tmp_path / "first.py").unlink()
    assert pickle.loads(sent)(STRING)("a") == "A!"


def only_named(table: FunctionTable, name: str) -> Function:
    (function,) = table.named(name)
    return function


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = 1\n1 / 0", r"first\.py, line 2: cannot be imported: ZeroDivisionError: division by zero"),
        ("def", r"first\.py: cannot be imported: SyntaxError: .*line 1"),
        (
            FILE + FILE.replace(FUTURE, ""),
            r"loud\(text STRING\) -> STRING: there is loud\(text STRING\) -> STRING already",
        ),
    ],
)
def test_directories_that_cannot_be_loaded(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "first.py").write_text(text)
    with pytest.raises(UserFunctionError, match=reason):
        load_directory(tmp_path)
    with pytest.raises(UserFunctionError, match="there is no directory of functions .*missing"):
        load_directory(tmp_path / "missing")


def installed(path: Path, points: str) -> None:
    """A package with entry points."""
    about = path / "loud-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{points}\n")


def test_entry_points_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loud_functions").mkdir()
    (tmp_path / "loud_functions" / "__init__.py").write_text("from loud_functions import inner")
    (tmp_path / "loud_functions" / "inner.py").write_text(FILE)
    installed(tmp_path, "loud = loud_functions")
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(2):
        assert load_entry_points().names() == ["IS_X", "IS_Y", "LOUD"]


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        (
            "gone = no_such_module",
            "the entry point gone of felice.sql.functions cannot be loaded: ModuleNotFoundError",
        ),
        (
            "odd = json:dumps",
            "the entry point odd of felice.sql.functions must name a module, and is <function dumps",
        ),
    ],
)
def test_entry_points_that_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, reason: str
) -> None:
    installed(tmp_path, point)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserFunctionError, match=reason):
        load_entry_points()
