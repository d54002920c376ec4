"""Each example in the table of functions, called without the compiler of expressions."""

from __future__ import annotations

import pytest

from felice.pipelines.sql import types
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.functions.table import SCALAR
from sql_calls import converted, evaluated

EXAMPLES = [
    (function.signature.text, *example)
    for function in built_in()
    if function.kind == SCALAR
    for example in function.examples
]


@pytest.mark.parametrize(("signature", "call", "result"), EXAMPLES)
def test_examples(signature: str, call: str, result: str) -> None:
    got, kind = evaluated(call)
    expected, expected_kind = evaluated(result)
    if isinstance(kind, types.Decimal):
        expected, expected_kind = converted(expected, kind), kind
    assert repr(got) == repr(expected), signature  # `repr` tells 1 from 1.0 and from Decimal("1")
    is_wider = kind in (types.BIGINT, types.Array(types.BIGINT))  # literals are as narrow as they can be
    assert kind == expected_kind or is_wider or expected is None


def test_each_function_has_an_example_and_its_arguments_have_names() -> None:
    for function in built_in():
        assert function.kind != SCALAR or function.examples, function.signature.text
        assert function.description.endswith(".")
